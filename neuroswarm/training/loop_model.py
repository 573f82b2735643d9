"""A model that somebody's own loop trains, with an optimiser of theirs.

Counts what the loop says it did, and puts the optimiser's state down for checkpoints. Refuses to
know of data and losses: those are the loop's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from neuroswarm.data.share import Share
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import CheckpointError, ConfigError, LifecycleError
from neuroswarm.training.optimizer_state import describe, put_down, take_up
from neuroswarm.training.trained_model import Progress, StepReport, TrainedModel, under

Evaluate = Callable[[nn.Module], float]
"""Held-out loss of a model in evaluation mode, nats; gradients are off."""

_OPTIMIZER = "optimizer."


class LoopModel(TrainedModel):
    """Trained from outside; what a checkpoint holds of the optimiser waits for `attach`.

    The place in the data and the state of random number generators are the loop's own matter.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._optimizer: torch.optim.Optimizer | None = None
        self._evaluate: Evaluate | None = None
        self._kept: tuple[dict[str, Tensor], Mapping[str, Any]] | None = None
        """The optimiser's state in the checkpoint, until there is an optimiser to take it."""

    @property
    def can_evaluate(self) -> bool:  # type: ignore[override]
        """Whether the loop's owner has said how."""
        return self._evaluate is not None

    @property
    def is_attached(self) -> bool:
        """Whether there is an optimiser."""
        return self._optimizer is not None

    def attach(self, optimizer: torch.optim.Optimizer, evaluate: Evaluate | None) -> bool:
        """Take an optimiser, and give it the state that the checkpoint holds of it.

        Returns:
            Whether there was such a state.

        Raises:
            ConfigError: its parameters are not exactly the trainable ones, its state is such that
                no checkpoint can hold it, or the checkpoint is of another optimiser.
            CheckpointError: the state in the checkpoint is malformed.
        """
        assert not self.is_attached, "the caller sees to it"
        self._check_parameters(optimizer)
        describe(optimizer, self._names)
        is_restored = self._kept is not None
        if self._kept is not None:
            take_up(optimizer, self._names, *self._kept)
        self._kept, self._optimizer, self._evaluate = None, optimizer, evaluate
        return is_restored

    def check_state(self) -> None:
        """ConfigError if a checkpoint cannot hold the optimiser's state as it has become."""
        if self._optimizer is not None:
            describe(self._optimizer, self._names)

    def follow(self, plan: InnerPlan) -> None:
        """Change nothing: optimiser and rate are the loop's."""

    def take_share(self, share: Share) -> None:
        """Change nothing: the loop reads data of its own."""

    def step(self) -> StepReport:
        """Refuse: the loop takes the steps.

        Raises:
            LifecycleError: always.
        """
        raise LifecycleError("model: a loop outside of the node takes its steps")

    def count(self, loss: float | None, tokens: int) -> None:
        """Note an inner step that the loop has taken.

        Args:
            loss: Training loss in nats; None, or not finite: not known.
            tokens: Trained on in this step.
        """
        known = loss if loss is not None and math.isfinite(loss) else None
        self.progress = self.progress.plus(known, tokens)
        self.total = self.total.plus(known, tokens)
        if known is not None:
            self.last_loss = known

    def inner_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimiser's state, buffers and counters; see `TrainedModel`.

        Raises:
            CheckpointError: the optimiser's state has become such that none can hold it.
        """
        tensors, document = self._put_down()
        named = {f"{_OPTIMIZER}{name}": tensor for name, tensor in tensors.items()}
        return named | self._extras(), {
            "optimizer": document,
            "progress": self.progress.to_json(),
            "total": self.total.to_json(),
            "last_loss": self.last_loss,
        }

    def load_inner_state(self, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
        """Take over what `inner_state` returned; the optimiser's part is kept for `attach`."""
        self._load_extras(tensors)
        try:
            document = counters["optimizer"]
            progress, total = Progress(**counters["progress"]), Progress(**counters["total"])
            self.last_loss = counters["last_loss"]
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"this checkpoint was not written by a training loop of one's own: {error} is "
                "missing (give another state folder, or run.fresh to start anew)"
            ) from error
        self.progress, self.total = progress, total
        self._kept = None if document is None else (under(_OPTIMIZER, tensors), document)

    def _put_down(self) -> tuple[Mapping[str, Tensor], Mapping[str, Any] | None]:
        """The optimiser's part of a checkpoint, or what the last one held of it."""
        if self._optimizer is None:
            return self._kept or ({}, None)
        try:
            return put_down(self._optimizer, self._names)
        except ConfigError as error:
            raise CheckpointError(str(error)) from error

    def _measure(self, num_batches: int, share: Share | None) -> float:
        return math.nan if self._evaluate is None else float(self._evaluate(self._model))

    @property
    def _names(self) -> dict[Tensor, str]:
        return {parameter: name for name, parameter in self.fragments.parameters}

    def _check_parameters(self, optimizer: torch.optim.Optimizer) -> None:
        """ConfigError unless it has exactly the parameters that the swarm exchanges."""
        wanted = self._names
        known = {parameter: name for name, parameter in self._model.named_parameters()}
        given = {p for group in optimizer.param_groups for p in group["params"]}
        missing = [name for parameter, name in wanted.items() if parameter not in given]
        extra = [
            known.get(p, f"one of shape {tuple(p.shape)} that is not of this model")
            for p in given - wanted.keys()
        ]
        faults = [
            f"{what}: {', '.join(sorted(names))}"
            for what, names in (("missing", missing), ("not trainable or foreign", extra))
            if names
        ]
        if faults:
            raise ConfigError(
                "the optimiser's parameters are not the trainable ones of the node's model: "
                f"{'; '.join(faults)} (give all with requires_grad, of the very model that "
                "create_swarm_node was given)"
            )
