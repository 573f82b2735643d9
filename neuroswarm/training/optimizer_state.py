"""The state of any torch optimiser as plain tensors and JSON values, and back.

Knows the form of `Optimizer.state_dict()`; refuses to know optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.models.flat_copy import copy_together

_DTYPES = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64,
        torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
"""Those of the files that checkpoints are made of."""

_TENSOR, _DICT, _LIST, _TUPLE, _FLOAT = "tensor", "dict", "list", "tuple", "float"


def describe(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's live tensors by name, and a JSON document of all else.

    Dense tensors of the usual dtypes, numbers, strings, booleans and None can be put down, in
    dicts, lists and tuples.

    Args:
        optimizer: Whose `state_dict` it is.
        names: Of its parameters. Whatever belongs to one is kept under its name, so that a
            parameter that is not there any more is noticed.

    Returns:
        The tensors, not copies, of any shapes and dtypes; and the document.

    Raises:
        ConfigError: something is of another kind; names it.
    """
    whole = optimizer.state_dict()
    order = _names_in_order(optimizer, names)
    tensors: dict[str, Tensor] = {}
    state = {
        order[index] if isinstance(index, int) else str(index): _encode(
            value, f"state.{order[index] if isinstance(index, int) else index}", tensors
        )
        for index, value in whole["state"].items()
    }
    groups = [
        _encode({k: v for k, v in group.items() if k != "params"}, f"group.{number}", tensors)
        for number, group in enumerate(whole["param_groups"])
    ]
    return tensors, {
        "kind": type(optimizer).__qualname__,
        "parameters": _names_by_group(optimizer, names),
        "state": state,
        "groups": groups,
    }


def put_down(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As `describe`, with copies of the tensors on the CPU. Cost: one copy of them."""
    tensors, document = describe(optimizer, names)
    return copy_together(tensors), document


def take_up(
    optimizer: torch.optim.Optimizer,
    names: Mapping[Tensor, str],
    tensors: Mapping[str, Tensor],
    document: Mapping[str, Any],
) -> None:
    """Restore what `put_down` returned, by `load_state_dict`: moments, counts, hyperparameters.

    Raises:
        ConfigError: it is of another optimiser, or its parameters are in other groups.
        CheckpointError: something is missing or malformed.
    """
    kind, groups = type(optimizer).__qualname__, _names_by_group(optimizer, names)
    if document.get("kind") != kind:
        raise ConfigError(
            f"the checkpoint holds the state of {document.get('kind')}, not of {kind}: give the "
            "same optimiser, another state folder, or run.fresh to start anew"
        )
    if document.get("parameters") != groups:
        raise ConfigError(
            f"the checkpoint's {kind} has its parameters in other groups or in another order: "
            "give the same, another state folder, or run.fresh to start anew"
        )
    order = _names_in_order(optimizer, names)
    try:
        state = {
            order.index(name) if name in order else name: _decode(value, tensors)
            for name, value in document["state"].items()
        }
        param_groups = [_decode(group, tensors) for group in document["groups"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"state of {kind} in the checkpoint: {error}") from error
    start = 0
    for group, members in zip(param_groups, groups, strict=True):
        group["params"] = list(range(start, start + len(members)))
        start += len(members)
    optimizer.load_state_dict({"state": state, "param_groups": param_groups})
    _keep_precision(optimizer, [p for g in optimizer.param_groups for p in g["params"]], state)


def _names_by_group(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> list[list[str]]:
    return [[names[p] for p in group["params"]] for group in optimizer.param_groups]


def _names_in_order(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> list[str]:
    """The name of each parameter by its number in `state_dict`."""
    return [name for group in _names_by_group(optimizer, names) for name in group]


def _encode(value: object, path: str, tensors: dict[str, Tensor]) -> Any:
    """A JSON value; what JSON cannot tell apart is a pair of its kind and its content."""
    match value:
        case Tensor() if _can_hold(value):
            tensors[path] = value
            return [_TENSOR, path]
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else [_FLOAT, repr(value)]
        case Mapping() if all(isinstance(key, str | int) for key in value):
            pairs = ([key, _encode(v, f"{path}.{key}", tensors)] for key, v in value.items())
            return [_DICT, list(pairs)]
        case list() | tuple():
            kind = _LIST if isinstance(value, list) else _TUPLE
            return [kind, [_encode(v, f"{path}.{i}", tensors) for i, v in enumerate(value)]]
    what = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
    raise ConfigError(
        f"the optimiser's {path} is of type {what}, which a checkpoint cannot hold (dense tensors "
        "of the usual dtypes, numbers, strings, booleans and None can be, in dicts, lists and "
        "tuples)"
    )


def _can_hold(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.dtype in _DTYPES


def _keep_precision(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], state: Mapping[Any, Any]
) -> None:
    """Undo the cast of `load_state_dict` to the parameters' dtype: moments may be finer."""
    for index, kept in state.items():
        if not isinstance(index, int) or not isinstance(kept, Mapping):
            continue
        loaded = optimizer.state[parameters[index]]
        for key, value in kept.items():
            if isinstance(value, Tensor) and loaded[key].dtype != value.dtype:
                loaded[key] = value.to(loaded[key].device)


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    kind, content = value
    match kind:
        case "tensor":
            return tensors[content].clone()
        case "float":
            return float(content)
        case "dict":
            return {key: _decode(item, tensors) for key, item in content}
        case "list":
            return [_decode(item, tensors) for item in content]
        case "tuple":
            return tuple(_decode(item, tensors) for item in content)
    raise ValueError(f"unknown kind {kind!r}")
