"""What a folder of token shards says of itself: read and checked without opening a shard.

The manifest says what every shard must hash to, so that a shard may come from anywhere. Imports
no torch: to look at a folder takes none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from neuroswarm.errors import DataError

BYTES = "bytes"
"""The name of the tokenizer that needs no file."""

MANIFEST = "manifest.json"
VOCABULARY = "tokenizer.json"
"""The vocabulary's file, in the folder; none for bytes."""

MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_SHARDS = 65536
MAX_SHARD_TOKENS = 1 << 31
MAX_VOCAB_SIZE = 1 << 31

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
    def token_bytes(self) -> int:
        """Length of a token in every shard: 1, 2 or 4."""
        return 1 if self.vocab_size <= 1 << 8 else 2 if self.vocab_size <= 1 << 16 else 4

    @property
    def num_tokens(self) -> int:
        """Of all shards."""
        return sum(shard.num_tokens for shard in self.shards)

    def num_bytes(self, shard: Shard) -> int:
        """Length of a shard's file."""
        return shard.num_tokens * self.token_bytes

    def encode(self) -> bytes:
        """The file's bytes; the same content gives the same bytes."""
        content = self.model_dump(mode="json")
        return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


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


def find_held(folder: Path, manifest: Manifest) -> list[Shard]:
    """The shards whose files are there."""
    return [shard for shard in manifest.shards if (folder / shard.name).is_file()]


def find_usable(folder: Path, manifest: Manifest) -> tuple[list[Shard], list[Shard]]:
    """The shards that are there, to train on and held out, by their lengths alone.

    Raises:
        DataError: a file has another length, or there is none to train on or none held out.
    """
    held = find_held(folder, manifest)
    require_lengths(folder, manifest, held)
    train = [shard for shard in held if not shard.is_held_out]
    held_out = [shard for shard in held if shard.is_held_out]
    for what, shards in (("training", train), ("held-out", held_out)):
        if not shards:
            raise DataError(f"{folder}: none of its {what} shards is there")
    return train, held_out


def require_lengths(folder: Path, manifest: Manifest, held: Iterable[Shard]) -> None:
    """DataError if one of these files has another length than the manifest says."""
    for shard in held:
        found, expected = (folder / shard.name).stat().st_size, manifest.num_bytes(shard)
        if found != expected:
            raise DataError(
                f"{folder / shard.name} has {found} bytes (its manifest says {expected}): it is "
                "damaged; prepare the data anew, or copy it again"
            )
