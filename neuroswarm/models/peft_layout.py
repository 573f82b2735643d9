"""Adapters under the names, in the shapes and with the configuration that peft reads.

Knows nothing of files; imports nothing of peft.

Source: peft 0.21, `docs/source/developer_guides/checkpoint.md` (names of the tensors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neuroswarm.errors import CheckpointCorrupt, ConfigError
from neuroswarm.models.lora import branches
from neuroswarm.models.lora_branch import Kind
from neuroswarm.models.peft_models import PREFIX


@dataclass(frozen=True, slots=True)
class Adapter:
    """B A beside one layer: A is [R, N], B is [M, R]."""

    layer: str
    kind: Kind
    A: Tensor
    B: Tensor


def adapters_of(model: nn.Module) -> list[Adapter]:
    """The adapters of a model, in the model's own memory.

    Raises:
        ConfigError: it has none.
    """
    found = [
        Adapter(name, branch.kind, branch.A.detach(), branch.B.detach())
        for name, branch in branches(model).items()
    ]
    if not found:
        raise ConfigError("the model has no low-rank adapters (they come with lora.rank)")
    return found


def peft_tensors(adapters: Iterable[Adapter]) -> dict[str, Tensor]:
    """A and B of every adapter, by peft's names; nothing is copied."""
    tensors: dict[str, Tensor] = {}
    for adapter in adapters:
        name = f"{PREFIX}{adapter.layer}"
        if adapter.kind is Kind.EMBEDDING:
            tensors[f"{name}.lora_embedding_A"] = adapter.A
            tensors[f"{name}.lora_embedding_B"] = adapter.B
        else:
            tensors[f"{name}.lora_A.weight"] = adapter.A
            tensors[f"{name}.lora_B.weight"] = adapter.B
    return tensors


@torch.no_grad()
def fill_adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give the adapters of a model the values that `peft_tensors` told of another one.

    Raises:
        CheckpointCorrupt: values of an adapter are missing, or of another shape.
    """
    for name, own in peft_tensors(adapters_of(model)).items():
        if name not in tensors or tensors[name].shape != own.shape:
            raise CheckpointCorrupt(f"adapters: {name} is missing, or of another shape")
        own.copy_(tensors[name])


def peft_config(
    adapters: Sequence[Adapter],
    *,
    alpha: float,
    dropout: float = 0.0,
    base: str | None = None,
    task_type: str | None = None,
) -> Mapping[str, object]:
    """The content of `adapter_config.json`.

    Args:
        adapters: At least one; all of one rank.
        alpha: They count alpha / rank times.
        dropout: With which they were trained.
        base: Name or folder of the base model, for whoever loads the adapter.
        task_type: One of peft's, such as `CAUSAL_LM`; None for models of other libraries.
    """
    return {
        "peft_type": "LORA",
        "task_type": task_type,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": len(adapters[0].A),
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": dropout,
        "bias": "none",
        "fan_in_fan_out": any(adapter.kind is Kind.CONV1D for adapter in adapters),
        "target_modules": [adapter.layer for adapter in adapters],
    }
