"""A model as an ordered list of named fragments, each a flat float32 vector.

Refuses to know what the vectors are used for: sent, averaged, hashed or written to disk.

Shapes: N = parameters of one fragment, flattened in order of their names' first appearance.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroswarm.hardware import large_tensors
from neuroswarm.models.flat_copy import concatenate
from neuroswarm.models.frozen_base import frozen_parameters, hash_base
from neuroswarm.wire import limits

ROOT = "(root)"
"""Name of the fragment that holds parameters of the model itself, outside any child."""

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


@runtime_checkable
class HasDimensions(Protocol):
    """A model that says which numbers shape it beyond what its parameters show."""

    @property
    def dimensions(self) -> Mapping[str, int | float | str]:
        """Such as the number of heads; JSON scalars by name."""
        ...


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a model: its stable name and its trainable parameters in order."""

    name: str
    parameters: tuple[tuple[str, nn.Parameter], ...]
    num_params: int


class Fragments:
    """The fragments of one model, in order.

    A fragment is a child of the model; where a child is, or contains, a list of blocks
    (`ModuleList`, `Sequential`, `ModuleDict`), each block is one. Parameters that hang directly
    on an opened module form a fragment of their own. Only parameters with `requires_grad` count;
    one that is used in two places belongs to the first. Fragments without elements are left out.
    Buffers are not part of any fragment.

    Args:
        model: Any module with at least one trainable parameter; real floating dtypes only.

    Raises:
        ValueError: nothing is trainable; a parameter is lazy, complex, integral or without memory
            of its own; or there are more or larger fragments than nodes take from each other.

    Threads: reads and writes the live parameters, so only the thread that owns the model may
    call `flatten`, `load` and `shift`; the tensors returned are copies and belong to the caller.
    """

    def __init__(self, model: nn.Module) -> None:
        seen: set[int] = set()
        found = (_fragment(name, module, own, seen) for name, module, own in _parts(model))
        # Of what has no elements there is nothing to code, send or hash.
        self._fragments = tuple(fragment for fragment in found if fragment.num_params)
        if not self._fragments:
            raise ValueError("model without trainable parameters: nothing to train or exchange")
        _check_limits(self._fragments)
        _check_memory(self.parameters)
        self.architecture = _architecture(model, self._fragments)
        """SHA-256 over names, shapes and dimensions; 32 bytes."""
        self.base = hash_base(frozen_parameters(model))
        """Hash of the frozen parameters with their values; empty where none is frozen."""

    def __len__(self) -> int:
        return len(self._fragments)

    def __iter__(self) -> Iterator[Fragment]:
        return iter(self._fragments)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order; unique."""
        return tuple(fragment.name for fragment in self._fragments)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Parameters of each fragment, in order."""
        return tuple(fragment.num_params for fragment in self._fragments)

    @property
    def parameters(self) -> tuple[tuple[str, nn.Parameter], ...]:
        """All trainable parameters with their names, fragment by fragment, each once."""
        return tuple(pair for fragment in self._fragments for pair in fragment.parameters)

    @torch.no_grad()
    def flatten(self, index: int) -> Tensor:
        """Copy a fragment's parameters. Float32 [N], CPU, contiguous."""
        fragment = self._fragments[index]
        if all(parameter.dtype == torch.float32 for _, parameter in fragment.parameters):
            return concatenate([parameter for _, parameter in fragment.parameters])
        flat = large_tensors.empty(fragment.num_params)
        for parameter, part in _slices(fragment, flat):
            part.copy_(parameter)
        return flat

    def flatten_all(self) -> tuple[Tensor, ...]:
        """Copy every fragment; see `flatten`."""
        return tuple(self.flatten(index) for index in range(len(self._fragments)))

    @torch.no_grad()
    def copies(self) -> tuple[Tensor, ...]:
        """Copies of all parameters as they are, in their own dtypes, on their devices."""
        return tuple(parameter.detach().clone() for _, parameter in self.parameters)

    @torch.no_grad()
    def put_back(self, copies: Sequence[Tensor]) -> None:
        """Set all parameters to what `copies` returned, bit for bit."""
        for (_, parameter), copy in zip(self.parameters, copies, strict=True):
            parameter.copy_(copy)

    @torch.no_grad()
    def load(self, index: int, flat: Tensor) -> None:
        """Set a fragment's parameters from float32 [N]; cast to their dtype and device.

        Raises:
            ValueError: `flat` has another shape.
        """
        fragment = self._fragments[index]
        _check_shape(fragment, flat)
        for parameter, part in _slices(fragment, flat):
            parameter.copy_(part)

    def load_all(self, flats: Sequence[Tensor]) -> None:
        """Set every fragment; see `load`. All shapes are checked before anything is written."""
        self._check_all(flats)
        for index, flat in enumerate(flats):
            self.load(index, flat)

    @torch.no_grad()
    def shift_all(self, deltas: Sequence[Tensor]) -> None:
        """Add float32 [N] to every fragment, in place, rounded to the parameters' dtype."""
        self._check_all(deltas)
        for index, delta in enumerate(deltas):
            self.shift(index, delta)

    @torch.no_grad()
    def shift(self, index: int, delta: Tensor) -> None:
        """Add float32 [N] to one fragment; as `shift_all`."""
        fragment = self._fragments[index]
        _check_shape(fragment, delta)
        for parameter, part in _slices(fragment, delta):
            parameter.add_(part.to(device=parameter.device))

    def _check_all(self, flats: Sequence[Tensor]) -> None:
        if len(flats) != len(self._fragments):
            raise ValueError(f"fragments: {len(flats)} given (the model has {len(self)})")
        for fragment, flat in zip(self._fragments, flats, strict=True):
            _check_shape(fragment, flat)


def _parts(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module, bool]]:
    """Yield (name, module, only its direct parameters) for every fragment to be."""
    yield prefix or ROOT, model, True
    for name, child in model.named_children():
        path = f"{prefix}.{name}" if prefix else name
        is_block = isinstance(model, _LISTS) and not isinstance(child, _LISTS)
        if not is_block and any(isinstance(module, _LISTS) for module in child.modules()):
            yield from _parts(child, path)
        else:
            yield path, child, False


def _fragment(name: str, module: nn.Module, own: bool, seen: set[int]) -> Fragment:
    parameters: list[tuple[str, nn.Parameter]] = []
    prefix = "" if name == ROOT and own else name + "."
    for local, parameter in module.named_parameters(recurse=not own):
        if not parameter.requires_grad or id(parameter) in seen:
            continue
        _check_dtype(prefix + local, parameter)
        seen.add(id(parameter))
        parameters.append((prefix + local, parameter))
    return Fragment(name, tuple(parameters), sum(p.numel() for _, p in parameters))


def _check_dtype(name: str, parameter: nn.Parameter) -> None:
    if is_lazy(parameter):
        raise ValueError(f"lazy parameter: {name} (call the model once before handing it over)")
    if not parameter.dtype.is_floating_point:
        raise ValueError(f"parameter of dtype {parameter.dtype}: {name} (needs a floating dtype)")


def _check_limits(fragments: Sequence[Fragment]) -> None:
    """Refuse what peers would refuse, before anything is trained."""
    if len(fragments) > limits.MAX_FRAGMENTS:
        raise ValueError(f"model of {len(fragments)} fragments (limit {limits.MAX_FRAGMENTS})")
    total = sum(fragment.num_params for fragment in fragments)
    if total > limits.MAX_STATE_PARAMS:
        raise ValueError(f"model of {total} parameters (limit {limits.MAX_STATE_PARAMS})")
    for fragment in fragments:
        if fragment.num_params > limits.MAX_FRAGMENT_PARAMS:
            raise ValueError(
                f"fragment {fragment.name} of {fragment.num_params} parameters "
                f"(limit {limits.MAX_FRAGMENT_PARAMS})"
            )
        if len(fragment.name) > limits.MAX_NAME_CHARS:
            raise ValueError(
                f"fragment with a name of {len(fragment.name)} characters (limit "
                f"{limits.MAX_NAME_CHARS}): {fragment.name[:40]}..."
            )


def _check_memory(named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Refuse parameters that lie on one another: whatever is added to one is added to both.

    Parameters are shared by using one object twice; two objects on the same memory look like two.
    """
    spans = []
    for name, parameter in named:
        if parameter.is_meta or parameter.layout != torch.strided:
            raise ValueError(f"parameter without values of its own: {name} ({parameter.layout})")
        if any(
            step == 0 < size - 1
            for size, step in zip(parameter.shape, parameter.stride(), strict=True)
        ):
            raise ValueError(f"expanded parameter: {name} (give it memory of its own)")
        if parameter.numel() and torch.ops.aten.is_non_overlapping_and_dense(parameter):
            spans.append((str(parameter.device), parameter.data_ptr(), parameter.nbytes, name))
    spans.sort()
    for (place, start, size, name), (other_place, other_start, _, other) in pairwise(spans):
        if place == other_place and other_start < start + size:
            raise ValueError(
                f"parameters {name} and {other} are two objects on one memory: tie them by "
                "using one Parameter in both places"
            )


def _slices(fragment: Fragment, flat: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
    start = 0
    for _, parameter in fragment.parameters:
        end = start + parameter.numel()
        yield parameter, flat[start:end].view(parameter.shape)
        start = end


def _check_shape(fragment: Fragment, flat: Tensor) -> None:
    if flat.shape != (fragment.num_params,):
        raise ValueError(
            f"fragment {fragment.name}: shape {tuple(flat.shape)} (needs ({fragment.num_params},))"
        )


def _dimensions(model: nn.Module) -> dict[str, object]:
    """Those of the model, and under `parts` those of modules inside it that say theirs."""
    said = {name: _said(module) for name, module in model.named_modules()}
    found, parts = said.pop(""), {name: said[name] for name in said if said[name]}
    return {**found, "parts": parts} if parts else found


def _said(module: nn.Module) -> dict[str, object]:
    """What a module says of itself, not what it passes on of one inside it, as those of peft do."""
    is_own = inspect.getattr_static(module, "dimensions", None) is not None
    if not (is_own and isinstance(module, HasDimensions)):
        return {}
    return dict(module.dimensions) if isinstance(module.dimensions, Mapping) else {}


def _architecture(model: nn.Module, fragments: Sequence[Fragment]) -> bytes:
    """SHA-256 over dimensions, fragments, and every parameter's name and shape; 32 bytes."""
    dimensions = _dimensions(model)
    trained = [
        [fragment.name, [[name, list(p.shape)] for name, p in fragment.parameters]]
        for fragment in fragments
    ]
    frozen = [[name, list(p.shape)] for name, p in frozen_parameters(model)]
    text = json.dumps(
        {"dimensions": dimensions, "fragments": trained, "frozen": frozen},
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(b"neuroswarm v1 architecture\0" + text.encode()).digest()
