"""A folder of token shards, read window by window.

Knows nothing of how shards are made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neuroswarm.corpus.manifest import (
    BYTES,
    VOCABULARY,
    Manifest,
    Shard,
    find_held,
    find_usable,
    read_manifest,
)
from neuroswarm.corpus.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer, dtype_for
from neuroswarm.data.tokens import ShardTokens
from neuroswarm.errors import DataError


class ShardFolder:
    """A folder with a manifest; of the shards that it lists some may be missing.

    Args:
        path: The folder.

    Raises:
        DataError: there is no manifest, or it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)

    @property
    def held(self) -> list[Shard]:
        """The shards whose files are there."""
        return find_held(self.path, self.manifest)

    def open_tokens(self) -> ShardTokens:
        """The shards that are there; nothing is read yet.

        Raises:
            DataError: a file has another length, or there is none to train on or none held out.
        """
        train, held_out = find_usable(self.path, self.manifest)
        shards = [*train, *held_out]
        held = {i: StoredShard(self.path / s.name, self.manifest, s) for i, s in enumerate(shards)}
        return ShardTokens([shard.num_tokens for shard in shards], len(train), held)

    def make_tokenizer(self) -> Tokenizer:
        """What made the tokens.

        Raises:
            DataError: its file is missing or another one.
        """
        if self.manifest.tokenizer == BYTES:
            return ByteTokenizer()
        found = FileTokenizer(self.path / VOCABULARY)
        if found.name != self.manifest.tokenizer:
            raise DataError(f"{self.path / VOCABULARY} is not the vocabulary that made the shards")
        return found

    def verify(self) -> Iterator[tuple[str, str]]:
        """Read all files that are there; yields names of those that are not as prepared, and why.

        A shard may be missing; the vocabulary may not, or nothing could be read as text again.

        Raises:
            OSError: a file cannot be read.
        """
        for shard in self.held:
            size = (self.path / shard.name).stat().st_size
            if size != self.manifest.num_bytes(shard):
                yield shard.name, f"{size} bytes instead of {self.manifest.num_bytes(shard)}"
            elif hash_file(self.path / shard.name) != shard.sha256:
                yield shard.name, "its bytes are not those that were prepared"
        if self.manifest.tokenizer == BYTES:
            return
        if not (self.path / VOCABULARY).is_file():
            yield VOCABULARY, "the vocabulary that made the shards is missing"
        elif hash_file(self.path / VOCABULARY) != self.manifest.tokenizer:
            yield VOCABULARY, "it is not the vocabulary that made the shards"


class StoredShard:
    """The tokens of a shard in a file, which is opened for every window.

    Not mapped: whoever cuts a file that is mapped kills the process with SIGBUS. It is faster
    besides: 7 us for a window of 1025 tokens, 4 us without opening, 25 us from a mapped file.

    Args:
        path: The file.
        manifest: Of its corpus.
        shard: Which one it is.

    Raises:
        DataError: it has another length, or cannot be read.
    """

    def __init__(self, path: Path, manifest: Manifest, shard: Shard) -> None:
        self.path = path
        self.num_tokens = shard.num_tokens
        self._dtype = np.dtype(str(dtype_for(manifest.vocab_size)).removeprefix("torch."))
        self._read(0, 0)

    def read(self, start: int, length: int) -> Tensor:
        """Tokens from there on: int64 [T].

        Raises:
            DataError: the file cannot be read, or has another length than it had.
        """
        size = self._dtype.itemsize
        data = self._read(start * size, length * size)
        return torch.from_numpy(np.frombuffer(data, self._dtype).astype(np.int64))

    def _read(self, offset: int, num_bytes: int) -> bytes:
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(offset)
                data = file.read(num_bytes)
                # After the read: a file that is cut between the two has its new length here.
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error
        expected = self.num_tokens * self._dtype.itemsize
        if len(data) != num_bytes:
            size = min(size, offset + len(data))
        if size != expected:
            raise DataError(
                f"{self.path} was changed while it is trained on: {size} bytes instead of "
                f"{expected}: put the file back, and start the node again"
            )
        return data


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hex; OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
