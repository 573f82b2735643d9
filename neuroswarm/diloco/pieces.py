"""How a state's bytes are cut into pieces of 1 MiB, and the hashes over them.

A fragment's bytes are its parameters followed by its momentum, little-endian float32; each
fragment is cut by itself, its last piece is shorter. Knows nothing of who sends or stores them.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from neuroswarm.values import HASH_BYTES

PIECE_BYTES = 1024 * 1024
BYTES_PER_PARAM = 8
"""A float32 parameter and its float32 momentum."""

Shape = tuple[tuple[str, int], ...]
"""Name and number of parameters of each fragment of an architecture, in order."""


def shape_of(names: Sequence[str], sizes: Sequence[int]) -> Shape:
    """The fragments of an architecture, from their names and numbers of parameters."""
    return tuple(zip(names, sizes, strict=True))


@dataclass(frozen=True, slots=True)
class Span:
    """Where a piece lies: bytes [start, end) of a fragment, which is the whole state's `at`."""

    fragment: int
    start: int
    end: int
    at: int

    @property
    def num_bytes(self) -> int:
        """Its length, 1 to `PIECE_BYTES`."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class Layout:
    """The pieces of a state, counted over all its fragments in order."""

    shape: Shape

    @cached_property
    def num_bytes(self) -> int:
        """Of the whole state."""
        return sum(BYTES_PER_PARAM * num_params for _, num_params in self.shape)

    @property
    def num_pieces(self) -> int:
        """Of the whole state."""
        return self._first_pieces[-1]

    def locate(self, piece: int) -> Span:
        """Where a piece lies; IndexError if there is no such piece."""
        if not 0 <= piece < self.num_pieces:
            raise IndexError(f"piece {piece} of a state of {self.num_pieces}")
        fragment = bisect.bisect_right(self._first_pieces, piece) - 1
        start = PIECE_BYTES * (piece - self._first_pieces[fragment])
        end = min(start + PIECE_BYTES, BYTES_PER_PARAM * self.shape[fragment][1])
        return Span(fragment, start, end, self._first_bytes[fragment] + start)

    def pieces_of(self, fragment: int) -> range:
        """The pieces of a fragment."""
        return range(self._first_pieces[fragment], self._first_pieces[fragment + 1])

    @cached_property
    def _first_pieces(self) -> list[int]:
        counts = (count_pieces(num_params) for _, num_params in self.shape)
        return [0, *itertools.accumulate(counts)]

    @cached_property
    def _first_bytes(self) -> list[int]:
        sizes = (BYTES_PER_PARAM * num_params for _, num_params in self.shape)
        return [0, *itertools.accumulate(sizes)]


def count_pieces(num_params: int) -> int:
    """Pieces of a fragment of N parameters; none if it has none."""
    return -(-BYTES_PER_PARAM * num_params // PIECE_BYTES)


def cut(params: Tensor, momentum: Tensor, start: int, end: int) -> list[memoryview]:
    """Bytes [start, end) of a fragment without a copy: of its parameters, its momentum, or both.

    Args:
        params: float32, shape [N], contiguous, on the CPU.
        momentum: As `params`.
        start: First byte, at least 0.
        end: After the last byte, at most 8 N.
    """
    half = 4 * params.numel()
    parts = (
        (params, min(start, half), min(end, half)),
        (momentum, max(start - half, 0), max(end - half, 0)),
    )
    return [_view(values)[first:last] for values, first, last in parts if first < last]


def hash_pieces(params: Tensor, momentum: Tensor) -> bytes:
    """SHA-256 of each piece of a fragment, one after the other. Cost: a pass over 8 N bytes."""
    size = BYTES_PER_PARAM * params.numel()
    hashes = []
    for start in range(0, size, PIECE_BYTES):
        digest = hashlib.sha256()
        for part in cut(params, momentum, start, min(start + PIECE_BYTES, size)):
            digest.update(part)
        hashes.append(digest.digest())
    return b"".join(hashes)


def make_leaf(name: str, num_params: int, hashes: bytes) -> bytes:
    """A fragment's leaf in the digest of a state, 32 bytes.

    Args:
        name: The fragment's name.
        num_params: N.
        hashes: From `hash_pieces`.

    Raises:
        ValueError: so many parameters do not have so many pieces.
    """
    if len(hashes) != HASH_BYTES * count_pieces(num_params):
        raise ValueError(f"fragment {name}: {len(hashes)} bytes of hashes for {num_params} values")
    encoded = name.encode()
    leaf = hashlib.sha256(b"neuroswarm v1 fragment of pieces\0")
    leaf.update(len(encoded).to_bytes(4, "little") + encoded)
    leaf.update(num_params.to_bytes(8, "little") + hashes)
    return leaf.digest()


def _view(values: Tensor) -> memoryview:
    return values.detach().numpy().astype("<f4", copy=False).view("u1").data
