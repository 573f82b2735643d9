"""Named tensors in one file: the safetensors format, written from their own memory.

Nothing is copied on the way to the disk, so writing needs no memory of its own. Knows nothing of
what the tensors are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from neuroswarm.errors import CheckpointCorrupt
from neuroswarm.hardware.file_access import read_at

PIECE_BYTES = 8 * 1024 * 1024
MAX_HEADER_BYTES = 100_000_000
"""The format's own bound."""

_LENGTH_BYTES = 8
_ALIGNMENT = 8
_NOTE = "note"
_DTYPES = {
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Loadable(Protocol):
    """A tensor that is not in memory."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        ...

    @property
    def shape(self) -> torch.Size:
        """Of the tensor."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        ...

    @property
    def load(self) -> Callable[[], Tensor]:
        """Reads it."""
        ...


Named = Mapping[str, Tensor | Loadable]
"""Tensors by name, some of which may be read only when it is their turn."""


def write_tensors(path: Path, tensors: Named, note: str = "") -> tuple[int, str]:
    """Write a new file; whether it is on the disk then is for the caller to wait for.

    Args:
        path: Replaced if it exists.
        tensors: Any shape, of floats, integers and booleans; may share memory.
        note: Text kept in the file's header.

    Returns:
        Bytes of the file and its SHA-256 in hex.

    Raises:
        OSError: the disk does not take it; a part may be there.
        TypeError: a tensor of another dtype.
        CheckpointError: one that is not in memory cannot be read.

    Threads: any; the tensors must not be written meanwhile. Cost: one pass, which hashes.
    """
    hasher, size = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        for piece in _pieces(tensors, note):
            hasher.update(piece)
            size += len(piece)
            left = memoryview(piece)
            while left:  # an unbuffered file may take less than it is given
                left = left[file.write(left) :]
    return size, hasher.hexdigest()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file, with memory of their own, and its note; hashes are not checked.

    Raises:
        OSError: the file cannot be read.
        CheckpointCorrupt: it is no file of this format.
    """
    with path.open("rb"):
        pass  # a missing file is an OSError with its name, whatever the library makes of it
    try:
        with safe_open(path, framework="pt") as file:
            note = (file.metadata() or {}).get(_NOTE, "")
            # Copies: what the library gives may be windows into the file.
            return {name: file.get_tensor(name).clone() for name in file.keys()}, note  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointCorrupt(f"{path.name}: {error}") from error


def read_note(path: Path) -> str:
    """Only the note of a file; errors like `read_tensors`."""
    with path.open("rb"):
        pass
    try:
        with safe_open(path, framework="pt") as file:
            return str((file.metadata() or {}).get(_NOTE, ""))
    except SafetensorError as error:
        raise CheckpointCorrupt(f"{path.name}: {error}") from error


def hash_file(path: Path) -> str:
    """SHA-256 of a file in hex; OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_tensors(file: int) -> dict[str, tuple[int, int]]:
    """Where the tensors of an open file begin and end, in bytes from its beginning.

    Args:
        file: Its descriptor.

    Raises:
        OSError: the file cannot be read.
        CheckpointCorrupt: it is no file of this format.
    """
    try:
        size = int.from_bytes(read_at(file, _LENGTH_BYTES, 0), "little")
        if size > MAX_HEADER_BYTES:
            raise CheckpointCorrupt(f"header of {size} bytes (limit {MAX_HEADER_BYTES})")
        header = json.loads(read_at(file, size, _LENGTH_BYTES))
        first = _LENGTH_BYTES + size
        return {
            name: (first + entry["data_offsets"][0], first + entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointCorrupt(f"header: {type(error).__name__}: {error}") from error


def _pieces(tensors: Named, note: str) -> Iterable[bytes | memoryview]:
    """The bytes of the file, in order."""
    wholes = dict(sorted(tensors.items(), key=lambda pair: -pair[1].dtype.itemsize))  # aligned so
    header: dict[str, object] = {"__metadata__": {_NOTE: note}}
    start = 0
    for name, whole in wholes.items():
        end = start + whole.nbytes
        header[name] = {
            "dtype": _name_of(whole.dtype),
            "shape": list(whole.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(_LENGTH_BYTES, "little")
    yield text
    for whole in wholes.values():
        loaded = whole if isinstance(whole, Tensor) else whole.load()
        raw = loaded.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for first in range(0, len(raw), PIECE_BYTES):
            yield raw[first : first + PIECE_BYTES]


def _name_of(dtype: torch.dtype) -> str:
    if dtype not in _DTYPES:
        raise TypeError(f"tensor of dtype {dtype} cannot be written")
    return _DTYPES[dtype]
