"""The inner loop of one node: a model, its optimiser and its place in the data.

Everything runs on the thread that owns the model; what goes out are copies.
Refuses to know of rounds and peers: others shift or replace its parameters.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from neuroswarm.clock import Clock
from neuroswarm.config.legality import OptimizerName
from neuroswarm.config.sections import TrainingConfig
from neuroswarm.data.sampler import Batch
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import CheckpointError, ComputeError, NonFiniteLoss
from neuroswarm.models.fragments import Fragments
from neuroswarm.training.loss import LossFunction, next_token_loss
from neuroswarm.training.optimizer import STATE_PREFIXES, InnerOptimizer

MAX_DROPPED_IN_A_ROW = 50
"""Dropped steps after which the parameters, not the data, must be at fault."""


class Batches(Protocol):
    """Where batches come from; `neuroswarm.data.sampler.WindowSampler` is one."""

    def train(self, index: int) -> Batch:
        """Training batch number `index`, always the same for one index."""
        ...

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of `num_batches` that are never trained on."""
        ...


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one inner step did."""

    loss: float
    """Nats before the update; not finite where the step was dropped."""
    tokens: int
    """Tokens trained on; 0 where the step was dropped."""
    seconds: float
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Inner steps that count: since the last publication, or in all."""

    steps: int = 0
    tokens: int = 0
    loss_sum: float = 0.0

    @property
    def mean_loss(self) -> float:
        """Mean training loss over the steps; 0 without any."""
        return self.loss_sum / self.steps if self.steps else 0.0

    def plus(self, loss: float, tokens: int) -> Progress:
        """With one more step."""
        return Progress(self.steps + 1, self.tokens + tokens, self.loss_sum + loss)

    def without(self, earlier: Progress) -> Progress:
        """What came after `earlier`, which is part of it."""
        return Progress(
            self.steps - earlier.steps,
            self.tokens - earlier.tokens,
            self.loss_sum - earlier.loss_sum,
        )


class Trainer:
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
        self.fragments = Fragments(model)
        self.progress = Progress()
        """Since `mark_published`, or the start."""
        self.total = Progress()
        """Since the node first started."""
        self.num_dropped = 0
        """Steps dropped because loss or gradient were not finite."""
        self.last_loss: float | None = None
        """Training loss of the newest step that counts; nats."""
        self._model = model
        self._batches = batches
        self._loss_fn = loss_fn
        self._clock = clock
        self._seed = config.seed
        self._config = config
        self._plan = InnerPlan(config.optimizer, partial(_warming_up, config))
        self._optimizer = self._make_optimizer(config.optimizer)
        self.device = self.fragments.parameters[0][1].device
        """Where the model is."""
        self._position = 0
        self._dropped_in_a_row = 0

    def step(self) -> StepReport:
        """Train on the next batch.

        Where loss or gradient are not finite the parameters stay as they are, the batch is
        passed over, and the step is counted as dropped.

        Raises:
            NonFiniteLoss: 50 steps in a row had to be dropped.
            ComputeError: the model returned something that is no loss.
        """
        began = self._clock.monotonic()
        inputs, targets = self._on_device(self._batches.train(self._position))
        with _seeded(self._seed, self._position):
            loss = self._loss_fn(self._model, inputs, targets)
            value = _scalar(loss)
            is_usable = math.isfinite(value) and self._differentiate(loss)
        self._position += 1
        if is_usable:
            self._optimizer.update(self._plan.lr(self.progress.steps))
        self._optimizer.zero_grad()  # their memory is for whoever comes between two steps
        tokens = self._count(value, targets.numel(), is_usable)
        return StepReport(value, tokens, self._clock.monotonic() - began, not is_usable)

    def follow(self, plan: InnerPlan) -> None:
        """Take the next steps by this plan; another optimiser than before starts anew."""
        self._plan = plan
        if plan.optimizer != self._optimizer.name:
            self._optimizer = self._make_optimizer(plan.optimizer)

    def mark_published(self, published: Progress) -> None:
        """Count only what came after `published`, which is `progress` of now or before."""
        self.progress = self.progress.without(published)

    def local(self) -> tuple[Tensor, ...]:
        """Copies of the parameters: one float32 [N] per fragment, CPU; the caller owns them."""
        return self.fragments.flatten_all()

    def shift(self, deltas: Sequence[Tensor]) -> None:
        """Add float32 [N] per fragment to the parameters; the optimiser's state stays.

        Raises:
            ValueError: number or shapes differ from the model's; nothing was changed.
        """
        self.fragments.shift_all(deltas)

    def shift_fragment(self, index: int, delta: Tensor) -> None:
        """Add float32 [N] to the parameters of one fragment; ValueError if the shape differs."""
        self.fragments.shift(index, delta)

    def load(self, flats: Sequence[Tensor]) -> None:
        """Replace the parameters by float32 [N] per fragment; the optimiser's state stays.

        Raises:
            ValueError: number or shapes differ from the model's; nothing was changed.
        """
        self.fragments.load_all(flats)

    def evaluate(self, flats: Sequence[Tensor] | None, num_batches: int) -> float:
        """Mean held-out loss in nats of the given parameters, or of the local ones with None.

        The local parameters are back in place, bit for bit, on return and on any error.
        """
        held = self.local() if flats is not None else ()
        try:
            if flats is not None:
                self.load(flats)
            with _evaluating(self._model), torch.no_grad(), _seeded(self._seed, 0):
                losses = [self._held_out_loss(i, num_batches) for i in range(num_batches)]
        finally:
            if flats is not None:
                self.load(held)
        return math.fsum(losses) / num_batches

    def inner_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, buffers, counters and place in the data: tensor copies and JSON values.

        The parameters are not part of it: `local`.
        """
        tensors = self._optimizer.tensors()
        for name, buffer in self._persistent_buffers().items():
            tensors[f"buffer.{name}"] = buffer.detach().cpu().clone()
        return tensors, {
            "position": self._position,
            "progress": _to_json(self.progress),
            "total": _to_json(self.total),
            "num_dropped": self.num_dropped,
            "dropped_in_a_row": self._dropped_in_a_row,
            "last_loss": self.last_loss,
        }

    @torch.no_grad()
    def load_inner_state(self, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
        """Take over what `inner_state` returned.

        Raises:
            CheckpointError: it is of another model, or a counter is missing.
        """
        buffers = self._persistent_buffers()
        given = _under("buffer.", tensors)
        if {n: b.shape for n, b in buffers.items()} != {n: b.shape for n, b in given.items()}:
            raise CheckpointError("buffers in the checkpoint are not those of the model")
        try:
            self._load_counters(counters)
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"counter missing in the checkpoint: {error}") from error
        self._optimizer.load({k: v for k, v in tensors.items() if k.startswith(STATE_PREFIXES)})
        for name, buffer in buffers.items():
            buffer.copy_(given[name])

    def _make_optimizer(self, name: OptimizerName) -> InnerOptimizer:
        return InnerOptimizer(self.fragments.parameters, self._config, self._model, name)

    def _differentiate(self, loss: Tensor) -> bool:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return math.isfinite(self._optimizer.clip())

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

    def _held_out_loss(self, index: int, num_batches: int) -> float:
        inputs, targets = self._on_device(self._batches.held_out(index, num_batches))
        return _scalar(self._loss_fn(self._model, inputs, targets))

    def _on_device(self, batch: Batch) -> Batch:
        return batch[0].to(self.device), batch[1].to(self.device)

    def _persistent_buffers(self) -> dict[str, Tensor]:
        kept = self._model.state_dict(keep_vars=True)
        return {name: buffer for name, buffer in self._model.named_buffers() if name in kept}

    def _load_counters(self, counters: Mapping[str, Any]) -> None:
        progress, total = Progress(**counters["progress"]), Progress(**counters["total"])
        self._position = counters["position"]
        self._dropped_in_a_row = counters["dropped_in_a_row"]
        self.num_dropped = counters["num_dropped"]
        self.last_loss = counters["last_loss"]
        self.progress, self.total = progress, total


def _warming_up(config: TrainingConfig, steps: int) -> float:
    return config.lr * min(1.0, (steps + 1) / max(1, config.warmup_steps))


def _scalar(loss: Tensor) -> float:
    if loss.dim() != 0:
        raise ComputeError(f"loss_fn returned shape {tuple(loss.shape)} (needs a scalar)")
    return float(loss.item())


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _to_json(progress: Progress) -> dict[str, Any]:
    return {"steps": progress.steps, "tokens": progress.tokens, "loss_sum": progress.loss_sum}


@contextmanager
def _seeded(seed: int, position: int) -> Iterator[None]:
    """Draw torch's random numbers from (seed, position) inside, and go on as before after."""
    drawn = hashlib.sha256(b"neuroswarm v1 step\0" + struct.pack("<QQ", seed, position)).digest()
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(int.from_bytes(drawn[:8], "little"))
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; after it, every module in the mode it had."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
