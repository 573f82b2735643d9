"""The model that the settings ask for, made anew.

Knows nothing of data, swarms or states: what it makes has its initial parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from neuroswarm.config.sections import TrainingConfig
from neuroswarm.models.rwkv7 import Rwkv7
from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.loss import LossFunction


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model in training mode, and the loss that it brings."""

    model: nn.Module
    loss_fn: LossFunction | None = None
    """None: `next_token_loss`."""


def build_model(training: TrainingConfig, vocab_size: int) -> BuiltModel:
    """Make the model of the settings, on the CPU.

    Args:
        training: `model` says which; `seed` is that of its initial parameters.
        vocab_size: Tokens that it must know.
    """
    return BuiltModel(_build_built_in(training, vocab_size))


def _build_built_in(training: TrainingConfig, vocab_size: int) -> nn.Module:
    if training.model == "rwkv7":
        shape = Rwkv7Config(
            dim=training.dim,
            num_layers=training.num_layers,
            head_size=training.dim // training.heads,
            vocab_size=vocab_size,
        )
        return Rwkv7(shape, seed=training.seed)
    dimensions = TransformerConfig(
        dim=training.dim,
        num_layers=training.num_layers,
        num_heads=training.heads,
        context=training.context,
        vocab_size=vocab_size,
    )
    return Transformer(dimensions, seed=training.seed)
