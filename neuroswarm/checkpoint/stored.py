"""Values that are read from an open file when they are asked for, and verified then.

The file may have lost its name: it is there as long as it is open. Knows nothing of what the
values are or why they are not in memory.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from neuroswarm.diloco.pieces import BYTES_PER_PARAM, PIECE_BYTES
from neuroswarm.errors import CheckpointCorrupt, CheckpointError
from neuroswarm.hardware import large_tensors
from neuroswarm.hardware.file_access import read_into
from neuroswarm.values import HASH_BYTES


class OpenFile:
    """A file that stays open as long as somebody holds on to this. Threads: any."""

    def __init__(self, descriptor: int) -> None:
        """Take over an open descriptor."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def read(self, at: int, num_bytes: int) -> bytearray:
        """So many bytes from there on; CheckpointError if they are not to be had."""
        data = bytearray(num_bytes)
        self.read_into(memoryview(data), at)
        return data

    def read_into(self, target: memoryview, at: int) -> None:
        """Fill `target`, of bytes; CheckpointError if so many are not to be had."""
        done = 0
        while done < len(target):
            try:
                found = read_into(self._descriptor, target[done:], at + done)
            except OSError as error:
                raise CheckpointError(f"cannot read what was put away: {error.strerror}") from error
            if not found:
                raise CheckpointCorrupt("what was put away is cut short")
            done += found


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes [at, at + size) of a file. Whoever needs to know checks them: they have a hash."""

    file: OpenFile
    at: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self, start: int, end: int) -> bytes:
        """Bytes [start, end), fewer at the end; CheckpointError if they are not to be had."""
        end = min(end, self.size)
        return bytes(self.file.read(self.at + start, max(0, end - start)))


class StoredTensors(Sequence[Tensor]):
    """Float32 tensors of one dimension one after the other; each is read whenever it is taken.

    Raises:
        CheckpointError: in reading; the file is not to be had, or has other bytes.
    """

    def __init__(self, file: OpenFile, sizes: Sequence[int], hashes: Sequence[bytes]) -> None:
        """Know where they are.

        Args:
            file: They begin at its beginning.
            sizes: Elements of each.
            hashes: SHA-256 of the bytes of each.
        """
        self._file = file
        self._sizes = tuple(sizes)
        self._hashes = tuple(hashes)

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...

    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(index, slice):
            return tuple(self._load(k) for k in range(*index.indices(len(self))))
        return self._load(range(len(self))[index])

    def __iter__(self) -> Iterator[Tensor]:
        return (self._load(k) for k in range(len(self)))

    def _load(self, index: int) -> Tensor:
        values = large_tensors.empty(self._sizes[index])
        target = view_bytes(values)
        self._file.read_into(target, 4 * sum(self._sizes[:index]))
        if hashlib.sha256(target).digest() != self._hashes[index]:
            raise CheckpointCorrupt("what was put away has not the bytes that were written")
        return values


@dataclass(frozen=True, eq=False)
class StoredFragment:
    """A fragment of an outer state in a file; every piece that is used is verified.

    Args:
        name: Its name.
        num_params: N.
        piece_hashes: SHA-256 of each of its pieces.
        leaf: Its leaf in the digest.
        file: Where it is.
        params_at: Where its parameters begin.
        momentum_at: Where its momentum begins.
    """

    name: str
    num_params: int
    piece_hashes: bytes
    leaf: bytes
    file: OpenFile
    params_at: int
    momentum_at: int

    @property
    def params(self) -> Tensor:
        """float32, shape [N]; a new tensor. CheckpointError if it is not to be had."""
        return self._load(0, 4 * self.num_params)

    @property
    def momentum(self) -> Tensor:
        """As `params`."""
        return self._load(4 * self.num_params, BYTES_PER_PARAM * self.num_params)

    def read(self, start: int, end: int) -> Sequence[bytearray]:
        """Bytes [start, end) of the parameters followed by the momentum; not verified.

        Raises:
            CheckpointError: they are not to be had.
        """
        half = 4 * self.num_params
        parts = (
            (self.params_at + start, min(end, half) - start),
            (self.momentum_at + max(start - half, 0), end - max(start, half)),
        )
        return [self.file.read(at, size) for at, size in parts if size > 0]

    def _load(self, first: int, last: int) -> Tensor:
        values = large_tensors.empty((last - first) // 4)
        target = view_bytes(values)
        whole = BYTES_PER_PARAM * self.num_params
        for piece in range(first // PIECE_BYTES, -(-last // PIECE_BYTES)):
            start, end = piece * PIECE_BYTES, min((piece + 1) * PIECE_BYTES, whole)
            data = b"".join(self.read(start, end))
            hash_ = self.piece_hashes[HASH_BYTES * piece : HASH_BYTES * (piece + 1)]
            if hashlib.sha256(data).digest() != hash_:
                raise CheckpointCorrupt(f"{self.name}: piece {piece} has not the bytes written")
            begin, stop = max(start, first), min(end, last)
            target[begin - first : stop - first] = memoryview(data)[begin - start : stop - start]
        return values


def view_bytes(values: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, without a copy."""
    return values.detach().reshape(-1).view(torch.uint8).numpy().data
