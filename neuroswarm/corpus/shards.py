"""A folder of token shards: its manifest, and the shards mapped into memory.

The manifest says what every shard must hash to, so that a shard may come from anywhere. Knows
nothing of how shards are made.

Shapes: N = tokens of one shard.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from neuroswarm.corpus.tokenizer import (
    BYTES,
    MAX_VOCAB_SIZE,
    ByteTokenizer,
    FileTokenizer,
    Tokenizer,
    dtype_for,
)
from neuroswarm.data.tokens import ShardTokens
from neuroswarm.errors import DataError

MANIFEST = "manifest.json"
VOCABULARY = "tokenizer.json"
"""The vocabulary's file, in the folder; none for bytes."""

MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_SHARDS = 65536
MAX_SHARD_TOKENS = 1 << 31

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Shard(_Closed):
    """One file of tokens: little-endian unsigned integers and nothing else."""

    name: str = Field(pattern=r"^(train|held-out)-[0-9]{5}\.tokens$")
    num_tokens: int = Field(ge=1, le=MAX_SHARD_TOKENS)
    sha256: Sha256

    @property
    def is_held_out(self) -> bool:
        """Whether nobody trains on it."""
        return self.name.startswith("held-out")


class Manifest(_Closed):
    """What is in a folder of shards."""

    format: Literal["neuroswarm tokens 1"] = "neuroswarm tokens 1"
    tokenizer: str = Field(pattern=r"^(bytes|[0-9a-f]{64})$")
    """`bytes`, or the SHA-256 of the vocabulary's file."""
    vocab_size: int = Field(ge=1, le=MAX_VOCAB_SIZE)
    shards: list[Shard] = Field(min_length=1, max_length=MAX_SHARDS)

    @model_validator(mode="after")
    def _names_once(self) -> Manifest:
        names = {shard.name for shard in self.shards}
        if len(names) != len(self.shards):
            raise ValueError("two shards of one name")
        return self

    @property
    def id(self) -> str:
        """What tells these tokens from others: SHA-256 of the manifest, hex."""
        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def dtype(self) -> torch.dtype:
        """Of the tokens in every shard."""
        return dtype_for(self.vocab_size)

    @property
    def num_tokens(self) -> int:
        """Of all shards."""
        return sum(shard.num_tokens for shard in self.shards)

    def num_bytes(self, shard: Shard) -> int:
        """Length of a shard's file."""
        return shard.num_tokens * self.dtype.itemsize

    def encode(self) -> bytes:
        """The file's bytes; the same content gives the same bytes."""
        content = self.model_dump(mode="json")
        return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


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
        return [shard for shard in self.manifest.shards if (self.path / shard.name).is_file()]

    def open_tokens(self) -> ShardTokens:
        """Map the shards that are there; nothing is read yet.

        Raises:
            DataError: a file has another length, or there is none to train on or none held out.
        """
        held = self.held
        kinds = [[shard for shard in held if shard.is_held_out is kind] for kind in (False, True)]
        if not all(kinds):
            what = "held-out" if kinds[0] else "training"
            raise DataError(f"{self.path}: none of its {what} shards is there")
        train, held_out = ([self._map(shard) for shard in shards] for shards in kinds)
        return ShardTokens(train, held_out)

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

    def _map(self, shard: Shard) -> Tensor:
        path, expected = self.path / shard.name, self.manifest.num_bytes(shard)
        found = path.stat().st_size
        if found != expected:
            raise DataError(
                f"{path} has {found} bytes (its manifest says {expected}): it is damaged; "
                "prepare the data anew, or copy it again"
            )
        return torch.from_file(
            str(path), shared=False, size=shard.num_tokens, dtype=self.manifest.dtype
        )


def is_shard_folder(path: Path) -> bool:
    """Whether a folder was made by `neuroswarm data prepare`."""
    return (path / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise DataError(f"{path} is longer than {MAX_MANIFEST_BYTES} bytes: it is no manifest")
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(
            f"{path} is no manifest of token shards: {where}: {first['msg']} (made by "
            "`neuroswarm data prepare`)"
        ) from error


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hex; OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
