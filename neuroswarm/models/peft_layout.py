"""A model's adapters under the names, in the shapes and with the configuration that peft reads.

Knows nothing of files; imports nothing of peft.

Source: peft 0.21, `docs/source/developer_guides/checkpoint.md` (names of the tensors).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from neuroswarm.errors import ConfigError
from neuroswarm.models.lora import branches
from neuroswarm.models.lora_branch import Kind, LoraBranch
from neuroswarm.models.peft_models import PREFIX


def peft_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A and B of every adapter, by peft's names; float32, the model's own memory.

    Raises:
        ConfigError: the model has no adapters.
    """
    tensors: dict[str, Tensor] = {}
    for name, branch in _branches(model).items():
        a, b = branch.A.detach(), branch.B.detach()
        if branch.kind is Kind.EMBEDDING:
            tensors[f"{PREFIX}{name}.lora_embedding_A"] = a
            tensors[f"{PREFIX}{name}.lora_embedding_B"] = b
        else:
            tensors[f"{PREFIX}{name}.lora_A.weight"] = a
            tensors[f"{PREFIX}{name}.lora_B.weight"] = b
    return tensors


def peft_config(
    model: nn.Module, *, base: str | None = None, task_type: str | None = None
) -> Mapping[str, object]:
    """The content of `adapter_config.json`.

    Args:
        model: With adapters.
        base: Name or folder of the base model, for whoever loads the adapter.
        task_type: One of peft's, such as `CAUSAL_LM`; None for models of other libraries.

    Raises:
        ConfigError: the model has no adapters.
    """
    found = _branches(model)
    options = next(iter(found.values())).options
    alpha = int(options.alpha) if options.alpha == int(options.alpha) else options.alpha
    return {
        "peft_type": "LORA",
        "task_type": task_type,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": options.rank,
        "lora_alpha": alpha,
        "lora_dropout": options.dropout,
        "bias": "none",
        "fan_in_fan_out": any(branch.kind is Kind.CONV1D for branch in found.values()),
        "target_modules": list(found),
    }


def _branches(model: nn.Module) -> Mapping[str, LoraBranch]:
    found = branches(model)
    if not found:
        raise ConfigError("the model has no low-rank adapters (they come with lora.rank)")
    return found
