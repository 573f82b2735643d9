"""The replicated outer state and its digest.

Knows values and hashes; how a state comes from the one before is `diloco/outer.py`.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from neuroswarm.codecs.payload import Buffer
from neuroswarm.diloco import applied as applied_table
from neuroswarm.diloco.applied import Applied
from neuroswarm.diloco.pieces import cut, hash_pieces, make_leaf
from neuroswarm.diloco.rules import Rules
from neuroswarm.hardware import large_tensors

SMALLEST = 2.0**-100
"""Magnitudes below this are 0 in parameters and momentum. Far above the subnormal numbers, so
that no bit of a state depends on the denormal mode of the thread that computed it."""


class Fragment(Protocol):
    """Outer parameters and momentum of one fragment, in memory or to be read from elsewhere.

    Raises:
        CheckpointError: What is kept elsewhere is not to be had, or is not what it was.
    """

    @property
    def name(self) -> str:
        """Stable name in the architecture."""
        ...

    @property
    def num_params(self) -> int:
        """N."""
        ...

    @property
    def params(self) -> Tensor:
        """float32, shape [N], contiguous, on the CPU; never written."""
        ...

    @property
    def momentum(self) -> Tensor:
        """As `params`."""
        ...

    @property
    def piece_hashes(self) -> bytes:
        """SHA-256 of each of its pieces, 32 bytes each."""
        ...

    @property
    def leaf(self) -> bytes:
        """Its leaf in the digest, 32 bytes."""
        ...

    def read(self, start: int, end: int) -> Sequence[Buffer]:
        """Bytes [start, end) of its parameters followed by its momentum, in order."""
        ...


@dataclass(frozen=True, eq=False)
class FragmentState:
    """Outer parameters and momentum of one fragment; the tensors are never written.

    Args:
        name: Stable name in the architecture.
        params: float32, shape [N], contiguous, on the CPU.
        momentum: As `params`.

    Raises:
        ValueError: A tensor is not of that form.
    """

    name: str
    params: Tensor
    momentum: Tensor

    def __post_init__(self) -> None:
        for values in (self.params, self.momentum):
            if values.dtype != torch.float32 or values.device.type != "cpu" or values.ndim != 1:
                raise ValueError(f"fragment {self.name}: needs float32 of one dimension on the CPU")
            if not values.is_contiguous():
                raise ValueError(f"fragment {self.name}: needs contiguous tensors")
        if self.params.numel() != self.momentum.numel():
            raise ValueError(
                f"fragment {self.name}: {self.params.numel()} parameters, "
                f"{self.momentum.numel()} momentum values"
            )

    @property
    def num_params(self) -> int:
        """N."""
        return self.params.numel()

    @cached_property
    def piece_hashes(self) -> bytes:
        """SHA-256 of each of its pieces, 32 bytes each. Cost: 8 bytes a parameter, once."""
        return hash_pieces(self.params, self.momentum)

    @cached_property
    def leaf(self) -> bytes:
        """Its leaf in the digest, 32 bytes. Cost: that of `piece_hashes`."""
        return fragment_leaf(self)

    def read(self, start: int, end: int) -> Sequence[Buffer]:
        """Bytes [start, end) of its parameters followed by its momentum; not copied."""
        return cut(self.params, self.momentum, start, end)


@dataclass(frozen=True, eq=False)
class OuterState:
    """What every honest peer holds alike after `round` rounds."""

    round: int
    fragments: tuple[Fragment, ...]
    applied: Applied
    rules: Rules
    architecture: bytes

    @cached_property
    def digest(self) -> bytes:
        """Hash over all of it, 32 bytes. Cost: SHA-256 over 8 bytes a parameter, once."""
        leaves = [fragment.leaf for fragment in self.fragments]
        return state_digest(
            self.round, leaves, self.rules.to_bytes(), self.architecture, self.applied
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether all its values are."""
        return all(isinstance(fragment, FragmentState) for fragment in self.fragments)

    def put_away(self, fragments: tuple[Fragment, ...]) -> None:
        """Go on with the same values elsewhere, so that the memory of these is free.

        Whoever reads the state meanwhile reads the same bits before and after.

        Args:
            fragments: With the same leaves.

        Raises:
            ValueError: They have others.
        """
        if [fragment.leaf for fragment in fragments] != [part.leaf for part in self.fragments]:
            raise ValueError(f"other values than those of the state of round {self.round}")
        object.__setattr__(self, "fragments", fragments)

    @property
    def params(self) -> tuple[Tensor, ...]:
        """Outer parameters of each fragment, in order; not to be written."""
        return tuple(fragment.params for fragment in self.fragments)

    @property
    def num_params(self) -> int:
        """Parameters of all fragments together."""
        return sum(fragment.num_params for fragment in self.fragments)


def genesis(rules: Rules, architecture: bytes, named: Iterable[tuple[str, Tensor]]) -> OuterState:
    """The outer state of round 0 from initial parameters.

    Args:
        rules: The swarm's rules.
        architecture: Architecture hash, 32 bytes.
        named: Name and initial parameters, float32 of shape [N], of each fragment; copied.

    Raises:
        ValueError: A parameter is not finite, or a tensor has the wrong form.
    """
    fragments = []
    for name, values in named:
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"fragment {name}: initial parameters are not finite")
        params = flush_small(large_tensors.copy(values))
        fragments.append(FragmentState(name, params, torch.zeros_like(params)))
    return OuterState(0, tuple(fragments), {}, rules, architecture)


def flush_small(values: Tensor) -> Tensor:
    """Set magnitudes below `SMALLEST`, negative zero included, to 0; in place."""
    return values.masked_fill_(values.abs() < SMALLEST, 0.0)


def fragment_leaf(fragment: FragmentState) -> bytes:
    """Hash of a fragment's name, size and pieces. 32 bytes."""
    return make_leaf(fragment.name, fragment.num_params, fragment.piece_hashes)


def state_digest(
    round_: int, leaves: Sequence[bytes], rules: bytes, architecture: bytes, applied: Applied
) -> bytes:
    """Digest of a state from its fragments' leaves: the root of a tree of three levels.

    Below each leaf are the hashes of the fragment's pieces, so that each piece can be checked
    alone (`diloco/pieces.py`).

    Args:
        round_: Round of the state.
        leaves: `fragment_leaf` of each fragment, in order.
        rules: Canonical bytes of the rules.
        architecture: Architecture hash, 32 bytes.
        applied: Contributions agreed in the last rounds.

    Returns:
        32 bytes.
    """
    listed = applied_table.to_bytes(applied)
    digest = hashlib.sha256(b"neuroswarm v1 state\0" + round_.to_bytes(8, "little"))
    for part in (rules, architecture, b"".join(leaves), listed):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
