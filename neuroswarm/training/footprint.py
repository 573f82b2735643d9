"""How much memory training takes, from the number of parameters and one measured window.

The bytes a parameter are those that docs/memory.md measured. Refuses to know what there is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neuroswarm.training.loss import LossFunction

BASE_BYTES = 260_000_000
"""What a node takes whatever its model is: Python, torch and the libraries."""

PARAMETER_BYTES = 4
"""Of a model that is made: its parameters are float32."""

TRAINING_BYTES = 44
"""A parameter, at the peak of a round, of a node that trains."""

FOLLOWING_BYTES = 24
"""A parameter, of a node that only follows rounds: model, outer state, the next one, payloads."""

RANK_BYTES = 8
"""A parameter, of a further process that computes gradients: the parameter and its gradient."""

SPARE_BYTES = 32_000_000
"""For what comes and goes: text, messages, files being written."""

ACTIVATION_FACTOR = 2.0
"""What a step takes for each byte that the forward pass keeps: their gradients come and go."""

ACTIVATION_SHARE = 0.5
"""Of the memory that is left beside the parameters; the rest is for peers' states and surprises."""


class Fit(enum.Enum):
    """What a machine has memory for."""

    TRAINS = "trains"
    FOLLOWS = "follows"
    """Not for training, but for following rounds and giving out states."""
    HELPS = "helps"
    """Not even for the model: it helps peers find and reach one another."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model needs, and whether there is so much."""

    num_params: int
    """Those that are trained."""
    budget_bytes: int | None
    """Memory that may still be taken; None if it is not known."""
    num_frozen: int = 0
    """Those that only the model itself holds."""
    num_ranks: int = 1
    """Processes that train it together in this memory."""

    @property
    def fit(self) -> Fit:
        """What there is memory for."""
        if self.budget_bytes is None or self.need_bytes(TRAINING_BYTES) <= self.budget_bytes:
            return Fit.TRAINS
        is_enough = self.need_bytes(FOLLOWING_BYTES) <= self.budget_bytes
        return Fit.FOLLOWS if is_enough else Fit.HELPS

    def need_bytes(self, bytes_per_parameter: int) -> int:
        """Bytes that are needed with so many for each parameter that is trained."""
        trained = bytes_per_parameter * self.num_params
        further = BASE_BYTES + RANK_BYTES * self.num_params + PARAMETER_BYTES * self.num_frozen
        own = trained + PARAMETER_BYTES * self.num_frozen + SPARE_BYTES
        return own + (self.num_ranks - 1) * further

    def explain(self) -> str:
        """Why it does not train, and what to do; empty if it does."""
        if self.fit is Fit.TRAINS:
            return ""
        has = max(0, self.budget_bytes or 0) / 1e6
        need = self.need_bytes(TRAINING_BYTES) / 1e6
        num_params = self.num_params + self.num_frozen
        role = (
            "it follows rounds and gives out states"
            if self.fit is Fit.FOLLOWS
            else "it helps peers find and reach one another"
        )
        return (
            f"training {num_params:,} parameters takes {need:,.0f} MB, this machine has "
            f"{has:,.0f} MB for it: {role} (for training give it more memory, or take a smaller "
            "model)"
        )


def choose_piece(num_windows: int, window_bytes: int, footprint: Footprint) -> int | None:
    """Most windows to take through the model at once, in each process; None if all of a step fit.

    Args:
        num_windows: Windows of a step.
        window_bytes: What the forward pass of one window keeps.
        footprint: The model's; of its budget what the parameters will take is set aside.
    """
    if footprint.budget_bytes is None:
        return None
    left = footprint.budget_bytes - footprint.need_bytes(TRAINING_BYTES)
    piece, bearable = num_windows, ACTIVATION_SHARE * left / footprint.num_ranks
    while piece > 1 and piece * window_bytes * ACTIVATION_FACTOR > bearable:
        piece //= 2
    return None if piece == num_windows else piece


def measure_window_bytes(
    model: nn.Module, loss_fn: LossFunction, inputs_BT: Tensor, targets_BT: Tensor
) -> int:
    """Bytes that a forward pass of one window keeps for the backward pass; parameters left out.

    Args:
        model: In the mode in which it is to be measured; its buffers may change in training mode.
        loss_fn: As of a `Trainer`.
        inputs_BT: At least one window, of which the first is taken.
        targets_BT: Likewise.

    Cost: one forward pass of one window.
    """
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss_fn(model, inputs_BT[:1], targets_BT[:1])
    return sum(kept.values())
