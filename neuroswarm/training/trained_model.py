"""A model in training as the swarm sees it: parameters by fragment, and what was done on them.

Refuses to know who takes the inner steps, with which optimiser and on what.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuroswarm.data.share import Share
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import CheckpointError
from neuroswarm.models.fragments import Fragments
from neuroswarm.training.batching import Batching

_BUFFER, _PARAMETER = "buffer.", "parameter."


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
    num_losses: int = 0
    """Steps whose loss is known."""

    @property
    def mean_loss(self) -> float:
        """Mean training loss over the steps whose loss is known; 0 without any."""
        return self.loss_sum / self.num_losses if self.num_losses else 0.0

    def plus(self, loss: float | None, tokens: int) -> Progress:
        """With one more step; None: its loss is not known."""
        is_known = loss is not None
        return Progress(
            self.steps + 1,
            self.tokens + tokens,
            self.loss_sum + (loss or 0.0),
            self.num_losses + is_known,
        )

    def without(self, earlier: Progress) -> Progress:
        """What came after `earlier`, which is part of it."""
        return Progress(
            self.steps - earlier.steps,
            self.tokens - earlier.tokens,
            self.loss_sum - earlier.loss_sum,
            self.num_losses - earlier.num_losses,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `Progress(**document)` is the same again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class TrainedModel(ABC):
    """The state of it is `local()`, `inner_state()` and nothing else.

    Args:
        model: Any module with trainable parameters.

    Threads: all methods on the thread that owns the model. `progress`, `total`, `num_dropped`
    and `last_loss` may be read from any thread; they may be one step old.
    """

    can_evaluate = True
    """Whether there is something to measure a held-out loss with."""

    def __init__(self, model: nn.Module) -> None:
        self.fragments = Fragments(model)
        self.progress = Progress()
        """Since `mark_published`, or the start."""
        self.total = Progress()
        """Since the node first started."""
        self.num_dropped = 0
        """Steps dropped because loss or gradient were not finite."""
        self.last_loss: float | None = None
        """Training loss of the newest step that counts and whose loss is known; nats."""
        self.has_data: Callable[[], bool] = _always
        """Whether there is something to train on; once there is, there always is."""
        self.batching = Batching()
        """How many batches of the data a step takes, and in which pieces."""
        self.is_bf16 = False
        """Whether the model computes in bfloat16; parameters and the optimiser stay float32."""
        self.why_idle = ""
        """Why this machine cannot train it; empty if it can."""
        self._model = model

    @property
    def is_hollow(self) -> bool:
        """Whether the model has shapes only, and nothing can be computed."""
        return self.device.type == "meta"

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.fragments.parameters[0][1].device

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

    @abstractmethod
    def follow(self, plan: InnerPlan) -> None:
        """Take the next steps by this plan of the swarm's."""

    @abstractmethod
    def take_share(self, share: Share) -> None:
        """Read this part of the data from now on; nothing changes where it knows no shares."""

    def evaluate(
        self, flats: Sequence[Tensor] | None, num_batches: int, share: Share | None = None
    ) -> float:
        """Mean held-out loss in nats of the given parameters, or of the local ones with None.

        The local parameters are back in place, bit for bit, on return and on any error. NaN while
        there is nothing to measure it on.

        Args:
            flats: float32 [N] per fragment.
            num_batches: How many batches to take the mean of.
            share: Whose part of the held-out data; None, and data that knows no shares, for all.
        """
        if not self.has_data():
            return math.nan
        held = self.fragments.copies() if flats is not None else ()
        try:
            if flats is not None:
                self.load(flats)
            with evaluating(self._model), torch.no_grad():
                return self._measure(num_batches, share)
        finally:
            if flats is not None:
                self.fragments.put_back(held)

    @abstractmethod
    def step(self) -> StepReport:
        """Take one inner step; the errors are the implementation's."""

    @abstractmethod
    def inner_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, buffers and counters: tensor copies on the CPU and JSON values.

        The parameters are not part of it: `local`.
        """

    @abstractmethod
    def load_inner_state(self, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
        """Take over what `inner_state` returned.

        Raises:
            CheckpointError: it is of another model or optimiser, or a counter is missing.
        """

    @abstractmethod
    def _measure(self, num_batches: int, share: Share | None) -> float:
        """Held-out loss of the parameters in place; in evaluation mode, without gradients."""

    def _extras(self) -> dict[str, Tensor]:
        """Copies of what `local` does not hold of the model, by the names of a snapshot.

        Buffers, and the parameters in float64.
        """
        kept = {f"{_BUFFER}{name}": buffer for name, buffer in self.persistent_buffers().items()}
        kept |= {f"{_PARAMETER}{name}": parameter for name, parameter in self._finer_parameters()}
        return {name: tensor.detach().cpu().clone() for name, tensor in kept.items()}

    @torch.no_grad()
    def _load_extras(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `_extras` returned; CheckpointError if it is of another model."""
        buffers = self.persistent_buffers()
        given = under(_BUFFER, tensors)
        if {n: b.shape for n, b in buffers.items()} != {n: b.shape for n, b in given.items()}:
            raise CheckpointError("buffers in the checkpoint are not those of the model")
        for name, buffer in buffers.items():
            buffer.copy_(given[name])
        exact = under(_PARAMETER, tensors)
        for name, parameter in self._finer_parameters():
            if name in exact:
                parameter.copy_(exact[name])

    def _finer_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self.fragments.parameters:
            if parameter.dtype == torch.float64:
                yield name, parameter

    def persistent_buffers(self) -> dict[str, Tensor]:
        """The live buffers that are part of the model's state, by their names, in its order."""
        kept = self._model.state_dict(keep_vars=True)
        return {name: buffer for name, buffer in self._model.named_buffers() if name in kept}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; after it, every module in the mode it had."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _always() -> bool:
    return True
