"""A folder of token shards, mapped into memory.

Knows nothing of how shards are made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

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
        """Map the shards that are there; nothing is read yet.

        Raises:
            DataError: a file has another length, or there is none to train on or none held out.
        """
        train, held_out = find_usable(self.path, self.manifest)
        shards = [*train, *held_out]
        held = {i: map_shard(self.path / s.name, self.manifest, s) for i, s in enumerate(shards)}
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


def map_shard(path: Path, manifest: Manifest, shard: Shard) -> Tensor:
    """A shard's tokens, mapped from its file; nothing is read yet."""
    dtype = dtype_for(manifest.vocab_size)
    return torch.from_file(str(path), shared=False, size=shard.num_tokens, dtype=dtype)


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hex; OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
