"""Models that the library peft has put adapters on: made alike on all nodes of a swarm.

Imports nothing of peft: whoever hands such a model over has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neuroswarm.models.lora_draw import bound_of, draw_a

PREFIX = "base_model.model."
"""What peft puts before the names of the base model's own."""


@dataclass(frozen=True, slots=True)
class PeftPair:
    """One adapter of one layer: B A, of rank R, beside a weight."""

    layer_name: str
    """Of the adapted layer in the base model."""
    A: Tensor
    """[R, N]"""
    B: Tensor
    """[M, R]"""
    bound: float
    """Of the values that A gets."""
    scale: float
    """How often B A counts."""
    layer: nn.Module


def is_peft(model: nn.Module) -> bool:
    """Whether a model is one of peft's."""
    return any(kind.__module__.partition(".")[0] == "peft" for kind in type(model).__mro__)


@torch.no_grad()
def settle_peft(model: nn.Module, *, seed: int, train_a: bool) -> int:
    """Make the adapters of a peft model those that every node has; returns how many there are.

    peft draws A (on embeddings: B) from torch's generator, so that each node would have another.
    Where B A is zero, which it is until it was trained, A is drawn anew (`draw_a`, from the seed
    and the name of the layer in the base model) and B set to zero: the model computes the same as
    before. Adapters that were trained before stay as they are. Then A is frozen, unless it is to
    be trained; what else peft has made trainable stays so.

    Args:
        model: For which `is_peft` holds; adapters of another kind than LoRA are left alone.
        seed: Of A, the same on all nodes.
        train_a: Train A as well as B.
    """
    pairs = list(_pairs(model))
    for pair in pairs:
        if not pair.A.any() or not pair.B.any():
            rank, width = pair.A.shape
            pair.A.copy_(draw_a(pair.layer_name, seed, (rank, width), pair.bound))
            pair.B.zero_()
        pair.A.requires_grad_(train_a)
        # Modules that say their dimensions are part of the architecture.
        pair.layer.dimensions = {"adapter": "peft lora", "scale": pair.scale}  # type: ignore[assignment]
    return len(pairs)


def _pairs(model: nn.Module) -> Iterator[PeftPair]:
    """The active LoRA adapters, layer by layer."""
    for name, layer in model.named_modules():
        for adapter in _active(layer):
            a, b, bound = _find(layer, adapter)
            if a is not None and b is not None:
                scale = float(layer.scaling[adapter])
                yield PeftPair(name.removeprefix(PREFIX), a, b, bound, scale, layer)


def _active(layer: nn.Module) -> list[str]:
    """Adapters in use of a layer of peft's; none of any other module."""
    if not (is_peft(layer) and hasattr(layer, "scaling")):
        return []
    names = layer.active_adapters
    assert isinstance(names, list), "peft's layers say which adapters are in use"
    return [name for name in names if name in layer.scaling]  # type: ignore[operator]


def _find(layer: nn.Module, adapter: str) -> tuple[Tensor | None, Tensor | None, float]:
    """A, B and the bound of A's values; None where the adapter has none."""
    linear_a = _child(layer, "lora_A", adapter)
    linear_b = _child(layer, "lora_B", adapter)
    if isinstance(linear_a, nn.Linear) and isinstance(linear_b, nn.Linear):
        return linear_a.weight, linear_b.weight, bound_of(linear_a.in_features)
    table_a = _child(layer, "lora_embedding_A", adapter)
    table_b = _child(layer, "lora_embedding_B", adapter)
    if isinstance(table_a, nn.Parameter) and isinstance(table_b, nn.Parameter):
        return table_a, table_b, 1.0
    return None, None, 0.0


def _child(layer: nn.Module, kind: str, adapter: str) -> nn.Module | Tensor | None:
    held = getattr(layer, kind, None)
    if isinstance(held, nn.ModuleDict | nn.ParameterDict) and adapter in held:
        return held[adapter]
    return None
