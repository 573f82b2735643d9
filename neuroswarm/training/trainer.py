"""The inner loop of one node: a model, its optimiser and its place in the data.

Everything runs on the thread that owns the model; what goes out are copies.
Refuses to know of rounds and peers: others shift or replace its parameters.
"""

from __future__ import annotations

import hashlib
import logging
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from neuroswarm.clock import Clock
from neuroswarm.config.legality import OptimizerName
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import Batch, ShareAware
from neuroswarm.data.share import Share
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import (
    CheckpointError,
    ComputeError,
    NonFiniteLoss,
    OutOfMemory,
)
from neuroswarm.hardware.memory import is_out_of_memory
from neuroswarm.training.footprint import measure_window_bytes
from neuroswarm.training.loss import LossFunction, next_token_loss
from neuroswarm.training.optimizer import STATE_PREFIXES, InnerOptimizer
from neuroswarm.training.precision import casting
from neuroswarm.training.trained_model import Progress, StepReport, TrainedModel, evaluating

logger = logging.getLogger(__name__)

KEPT_SHARES = 8
"""Shares of the data of which it is known how far they were read."""

MAX_DROPPED_IN_A_ROW = 50
"""Dropped steps after which the parameters, not the data, must be at fault."""


class Batches(Protocol):
    """Where batches come from; `neuroswarm.data.sampler.WindowSampler` is one.

    The numbers go on through all rounds, unless the object is `ShareAware` too: then it is told
    its share of every round, and the numbers begin at 0 with it.
    """

    def train(self, index: int) -> Batch:
        """Training batch number `index`, always the same for one index (of a share)."""
        ...

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of `num_batches` that are never trained on."""
        ...


class OtherDevices(Protocol):
    """Further devices that take parts of a step; `neuroswarm.training.devices` has them."""

    def differentiate(
        self, trainer: Trainer, inputs: Tensor, targets: Tensor
    ) -> tuple[float, bool] | None:
        """As `Trainer.differentiate` of the whole batch; None if the trainer has to do it alone."""
        ...


class Trainer(TrainedModel):
    """Trains one model; the state of it is `local()`, `inner_state()` and nothing else.

    A step depends on that state and the arguments here alone (also where the model draws random
    numbers: the generator is seeded for each step), so a trainer that takes over the state goes
    on bit for bit on the same machine with the same number of threads. Frozen parameters and
    buffers that are not persistent are not part of it: give the same model.

    Args:
        model: Any module; see `next_token_loss` for the forms of `forward`. In training mode.
        batches: The data.
        config: The inner optimiser's settings; optimiser and learning rate until there is a plan.
        clock: Measures steps.
        loss_fn: Replaces `next_token_loss`.

    Threads: all methods on the thread that owns the model. `progress`, `total`, `num_dropped`
    and `last_loss` may be read from any thread; they may be one step old.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        config: TrainingConfig,
        *,
        clock: Clock,
        loss_fn: LossFunction = next_token_loss,
    ) -> None:
        super().__init__(model)
        self.batches = batches
        self.others: OtherDevices | None = None
        """What computes gradients together with this model's device."""
        self._loss_fn = loss_fn
        self._clock = clock
        self._seed = config.seed
        self._config = config
        self._plan = InnerPlan(config.inner_optimizer, partial(_warming_up, config))
        self._optimizer = self._make_optimizer(config.inner_optimizer)
        self._position = 0
        self._share: Share | None = None
        self._share_from = 0
        """Position at which the batches of the share begin; 0 if the data knows no shares."""
        self._left_at: dict[Share, int] = {}
        """How many batches of other shares were read, the latest last."""
        self._told: Share | None = None
        """The share that the data was told last."""
        self._dropped_in_a_row = 0

    def take_share(self, share: Share) -> None:
        """Read this part of the data from now on, from where it was left; a new one from its start.

        A node that leaves a state and comes back to it reads nothing twice. Nothing changes for
        data that knows no shares. The others are told before the next step,
        so that what they raise is an error of that step.
        """
        if share == self._share or not isinstance(self.batches, ShareAware):
            return
        if self._share is not None:
            self._left_at[self._share] = self._position - self._share_from
        self._share, self._share_from = share, self._position - self._left_at.pop(share, 0)
        while len(self._left_at) > KEPT_SHARES:
            del self._left_at[next(iter(self._left_at))]

    def step(self) -> StepReport:
        """Train on the next batches; in smaller pieces from the time on that memory runs short.

        Where loss or gradient are not finite the parameters stay as they are, the batches are
        passed over, and the step is counted as dropped.

        Raises:
            NonFiniteLoss: 50 steps in a row had to be dropped.
            OutOfMemory: not even one window fits, or the optimiser's state does not.
            ComputeError: the model returned something that is no loss.
        """
        began = self._clock.monotonic()
        num_draws = self.batching.num_draws
        inputs, targets = self._draw(num_draws)
        value, is_usable = self._differentiate(inputs, targets)
        self._position += num_draws
        if is_usable:
            self._update()
        self._optimizer.zero_grad()  # their memory is for whoever comes between two steps
        tokens = self._count(value, targets.numel(), is_usable)
        seconds = self._clock.monotonic() - began
        self.batching.note(num_draws, len(inputs), seconds)
        return StepReport(value, tokens, seconds, not is_usable)

    def follow(self, plan: InnerPlan) -> None:
        """Take the next steps by this plan; another optimiser than before starts anew."""
        self._plan = plan
        if plan.optimizer != self._optimizer.name:
            self._optimizer = self._make_optimizer(plan.optimizer)

    @property
    def model(self) -> nn.Module:
        """What is trained."""
        return self._model

    @property
    def position(self) -> int:
        """Place in the data: draws so far."""
        return self._position

    def measure_window(self) -> tuple[int, int]:
        """Windows of a step, and bytes that a forward pass of one keeps; see `footprint`."""
        inputs, targets = self._on_device(self.batches.train(0))
        with evaluating(self._model), _seeded(self._seed, 0):
            kept = measure_window_bytes(self._model, self._loss_fn, inputs, targets)
        return self.batching.num_draws * len(inputs), kept

    def inner_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, buffers, counters and place in the data: tensor copies and JSON values.

        The parameters are not part of it: `local`; but those in float64 are, as the float32 of
        `local` does not hold all of them.
        """
        tensors = self._optimizer.tensors() | self._extras()
        return tensors, {
            "position": self._position,
            "share": None if self._share is None else asdict(self._share),
            "share_from": self._share_from,
            "shares_left_at": [[asdict(share), read] for share, read in self._left_at.items()],
            "progress": self.progress.to_json(),
            "total": self.total.to_json(),
            "num_dropped": self.num_dropped,
            "dropped_in_a_row": self._dropped_in_a_row,
            "last_loss": self.last_loss,
            "batching": self.batching.to_json(),
        }

    def load_inner_state(self, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
        """Take over what `inner_state` returned.

        Raises:
            CheckpointError: it is of another model, or a counter is missing.
        """
        self._load_extras(tensors)
        try:
            self._load_counters(counters)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"counter missing in the checkpoint: {error}") from error
        self._optimizer.load({k: v for k, v in tensors.items() if k.startswith(STATE_PREFIXES)})

    def _make_optimizer(self, name: OptimizerName) -> InnerOptimizer:
        return InnerOptimizer(self.fragments.parameters, self._config, self._model, name)

    def _draw(self, num_draws: int) -> Batch:
        share = self._share
        if share is not None and share != self._told and isinstance(self.batches, ShareAware):
            self.batches.take_share(share)
            self._told = share
        first = self._position - self._share_from
        drawn = [self.batches.train(first + k) for k in range(num_draws)]
        if len(drawn) == 1:
            return drawn[0]
        return torch.cat([inputs for inputs, _ in drawn]), torch.cat([t for _, t in drawn])

    def differentiate(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        num_targets: int | None = None,
        place: tuple[int, int] | None = None,
    ) -> tuple[float, bool]:
        """Put the gradients of a batch in place, unclipped; in halves if memory runs short.

        Args:
            inputs: As the data gives them, on any device.
            targets: Likewise.
            num_targets: Targets of the batch of which this is a part; loss and gradients count
                by its share of them. None: it is the whole.
            place: Position in the data and number of the device, from which random numbers
                follow. None: this trainer's position, device 0.

        Returns:
            The loss in nats, and whether it is finite.

        Raises:
            OutOfMemory, ComputeError: as `step`.
        """
        inputs, targets = self._on_device((inputs, targets))
        whole = targets.numel() if num_targets is None else num_targets
        while True:
            try:
                with _seeded(self._seed, *(place or (self._position,))):
                    return self._accumulate(inputs, targets, whole)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(f"{type(error).__name__}: {error}"):
                    raise
                self._optimizer.zero_grad()
                if not self.batching.halve(len(inputs)):
                    raise OutOfMemory(f"no memory for one window of text: {error}") from error
            logger.warning("out of memory: %d windows at once from now on", self.batching.piece)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._optimizer.zero_grad()

    def _differentiate(self, inputs: Tensor, targets: Tensor) -> tuple[float, bool]:
        """Loss and whether it and the gradients, which are clipped, are finite; on all devices."""
        found = None if self.others is None else self.others.differentiate(self, inputs, targets)
        value, is_finite = found or self.differentiate(inputs, targets)
        return value, is_finite and math.isfinite(self._optimizer.clip())

    def _accumulate(self, inputs: Tensor, targets: Tensor, num_targets: int) -> tuple[float, bool]:
        self._optimizer.zero_grad()
        total, piece = 0.0, self.batching.piece or len(inputs)
        pieces = zip(torch.split(inputs, piece), torch.split(targets, piece), strict=True)
        for inputs_BT, targets_BT in pieces:
            with casting(self.device, is_on=self.is_bf16):
                loss = self._loss_fn(self._model, inputs_BT, targets_BT)
            share = targets_BT.numel() / num_targets
            value = _scalar(loss) * share
            total += value
            if not math.isfinite(total):
                return total, False
            if not loss.requires_grad:
                raise ComputeError("the loss does not depend on any parameter that is trained")
            (loss if share == 1 else loss * share).backward()  # type: ignore[no-untyped-call]
        self._make_dense()
        return total, True

    def _update(self) -> None:
        try:
            self._optimizer.update(self._plan.lr(self.progress.steps))
        except (RuntimeError, MemoryError) as error:
            self._optimizer.zero_grad()
            if not is_out_of_memory(f"{type(error).__name__}: {error}"):
                raise
            raise OutOfMemory(f"no memory for the optimiser's state: {error}") from error

    def _make_dense(self) -> None:
        """Gradients of sparse embeddings as plain tensors: clipping and AdamW know no others."""
        for _, parameter in self.fragments.parameters:
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                parameter.grad = parameter.grad.to_dense()

    def _count(self, loss: float, tokens: int, is_usable: bool) -> int:
        if is_usable:
            self.progress = self.progress.plus(loss, tokens)
            self.total = self.total.plus(loss, tokens)
            self.last_loss = loss
            self._dropped_in_a_row = 0
            return tokens
        self.num_dropped += 1
        self._dropped_in_a_row += 1
        if self._dropped_in_a_row >= MAX_DROPPED_IN_A_ROW:
            self._dropped_in_a_row = 0
            raise NonFiniteLoss(
                f"loss or gradient not finite in {MAX_DROPPED_IN_A_ROW} steps in a row "
                "(lower the learning rate, or go back to a checkpoint)"
            )
        return 0

    def _measure(self, num_batches: int, share: Share | None) -> float:
        with _seeded(self._seed, 0):
            losses = [self._held_out_loss(i, num_batches, share) for i in range(num_batches)]
        return math.fsum(losses) / num_batches

    def _held_out_loss(self, index: int, num_batches: int, share: Share | None) -> float:
        if share is not None and isinstance(self.batches, ShareAware):
            batch = self.batches.held_out_of(share, index, num_batches)
        else:
            batch = self.batches.held_out(index, num_batches)
        inputs, targets = self._on_device(batch)
        piece = self.batching.piece or len(inputs)  # no more at once than a step
        pieces = zip(torch.split(inputs, piece), torch.split(targets, piece), strict=True)
        return math.fsum(
            _scalar(self._loss_fn(self._model, inputs_BT, targets_BT))
            * (targets_BT.numel() / targets.numel())
            for inputs_BT, targets_BT in pieces
        )

    def _on_device(self, batch: Batch) -> Batch:
        return batch[0].to(self.device), batch[1].to(self.device)

    def _load_counters(self, counters: Mapping[str, Any]) -> None:
        progress, total = Progress(**counters["progress"]), Progress(**counters["total"])
        place = {name: counters[name] for name in ("position", "share", "share_from")}
        self._load_place(**place, shares_left_at=counters.get("shares_left_at", ()))
        self._dropped_in_a_row = counters["dropped_in_a_row"]
        self.num_dropped = counters["num_dropped"]
        self.last_loss = counters["last_loss"]
        self.progress, self.total = progress, total
        self.batching.load(counters["batching"])

    def _load_place(
        self,
        position: int,
        share: Mapping[str, int] | None,
        share_from: int,
        shares_left_at: Sequence[tuple[Mapping[str, int], int]] = (),
    ) -> None:
        self._position, self._share, self._share_from, self._left_at = position, None, 0, {}
        if share is not None and isinstance(self.batches, ShareAware):
            self._share, self._share_from = Share(**share), share_from
            self._left_at = {Share(**other): int(read) for other, read in shares_left_at}


def _warming_up(config: TrainingConfig, steps: int) -> float:
    return config.inner_lr * min(1.0, (steps + 1) / max(1, config.warmup_steps))


def _scalar(loss: Tensor) -> float:
    if loss.dim() != 0:
        raise ComputeError(f"loss_fn returned shape {tuple(loss.shape)} (needs a scalar)")
    return float(loss.item())


@contextmanager
def _seeded(seed: int, position: int, device: int = 0) -> Iterator[None]:
    """Draw torch's random numbers from these inside, and go on as before after."""
    place = struct.pack("<QQ", seed, position) + (struct.pack("<Q", device) if device else b"")
    drawn = hashlib.sha256(b"neuroswarm v1 step\0" + place).digest()
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(int.from_bytes(drawn[:8], "little"))
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
