"""Low-rank adapters (LoRA) beside the layers of any model, put on in place.

The base's parameters are frozen and keep their names and bits; each adapted layer gets a child
`lora` with A and B. Knows nothing of files, swarms and other libraries' adapters.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from neuroswarm.errors import ConfigError
from neuroswarm.models.lora_branch import (
    NAME,
    Kind,
    LoraBranch,
    LoraOptions,
    kind_of,
    put_on,
    take_off,
    weight_of,
)

HEAD_NAMES = frozenset({"head", "lm_head", "output_head", "embed_out"})
"""Parts of a layer's name that say that it makes the logits."""

MAX_NAMED = 8
"""Names that an error lists at most."""


def attach_lora(model: nn.Module, options: LoraOptions) -> tuple[str, ...]:
    """Freeze a model and put adapters on its layers, in place; returns the layers' names.

    The model computes what it did before until a B is trained. A model that has the same
    adapters already is left as it is, with the values that it has.

    Args:
        model: Any module; every parameter of it is frozen (`requires_grad` False).
        options: What to put on.

    Raises:
        ConfigError: no layer, or none of a pattern's name, can have an adapter, or the model has
            other adapters already.
    """
    if present := branches(model):
        if any(branch.options != options for branch in present.values()):
            raise ConfigError("the model has low-rank adapters with other options already")
        return tuple(present)
    layers = choose_layers(model, options.targets)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, layer in layers.items():
        put_on(layer, LoraBranch(layer, name, options))
    return tuple(layers)


def branches(model: nn.Module) -> dict[str, LoraBranch]:
    """The adapters of a model by the names of their layers, in the model's order."""
    return {
        name.removesuffix(NAME).removesuffix("."): module
        for name, module in model.named_modules()
        if isinstance(module, LoraBranch)
    }


@torch.no_grad()
def merge_lora(model: nn.Module) -> tuple[str, ...]:
    """Add every adapter into its layer's weight and take it off; returns the layers' names.

    The sum is taken in float32 and rounded to the weight's dtype. The base is another one
    afterwards, and stays frozen.

    Raises:
        ConfigError: an adapted layer shares its weight with another layer, which would change too.
    """
    found = branches(model)
    for name in found:
        if others := _sharing(model, name):
            raise ConfigError(
                f"cannot merge: {name} shares its weight with {', '.join(others)}, which has no "
                "such adapter (export the adapter instead, or leave that layer out of lora.targets)"
            )
    for name, branch in found.items():
        layer = model.get_submodule(name)
        weight = weight_of(layer)
        weight.copy_(weight.float() + branch.weight_delta())
        take_off(layer, branch)
    return tuple(found)


def choose_layers(model: nn.Module, patterns: tuple[str, ...]) -> dict[str, nn.Module]:
    """The layers that get an adapter, by name, in the model's order.

    Args:
        model: Any module.
        patterns: Names of layers, or ends of names from a dot on (`att.key`), with `*` and `?` as
            in file names. Without any: all linear layers but those that make the logits, which
            are the ones named so (`HEAD_NAMES`) or whose weight is an embedding's, too.

    Raises:
        ConfigError: as `attach_lora`.
    """
    layers = dict(_layers(model))
    if not patterns:
        tied = _embedded(model)
        chosen = {
            name: layer
            for name, layer in layers.items()
            if kind_of(layer) is not Kind.EMBEDDING
            and not HEAD_NAMES & set(name.split("."))
            and id(layer.weight) not in tied
        }
        if not chosen:
            raise ConfigError(
                f"no linear layer to adapt in {type(model).__name__}; name layers by lora.targets"
                + _known(layers)
            )
        return chosen
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in layers):
            raise ConfigError(f"lora.targets: {pattern!r} names no layer" + _known(layers))
    return {
        name: layer
        for name, layer in layers.items()
        if any(_fits(name, pattern) for pattern in patterns)
    }


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every layer that can have an adapter, each once.

    Not those of `nn.MultiheadAttention`, which reads the weights and passes the layers by.
    """
    passed_by = {
        id(child)
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention)
        for child in module.modules()
    }
    for name, module in model.named_modules():
        if name and id(module) not in passed_by:
            try:
                kind = kind_of(module)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from error
            if kind is not None:
                yield name, module


def _embedded(model: nn.Module) -> set[int]:
    """Identities of the weights of embeddings."""
    return {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def _sharing(model: nn.Module, name: str) -> list[str]:
    """Other modules that use the weight of a layer."""
    layer = model.get_submodule(name)
    return [
        other
        for other, module in model.named_modules()
        if module is not layer
        for _, value in module.named_parameters(recurse=False)
        if value is weight_of(layer)
    ]


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def _known(layers: dict[str, nn.Module]) -> str:
    if not layers:
        return ""
    names = list(layers)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f" (there are {', '.join(names[:MAX_NAMED])}{more})"


def count_adapters(model: nn.Module) -> tuple[int, int]:
    """Numbers of all parameters without the adapters, and of the adapters that are trained."""
    found = branches(model).values()
    mine: list[Tensor] = [p for branch in found for p in branch.parameters()]
    trained = sum(p.numel() for p in mine if p.requires_grad)
    return sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in mine), trained
