"""A shard to fetch, and what takes its bytes.

Knows nothing of where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WantedShard:
    """One shard to fetch."""

    index: int
    """Its place in the corpus."""
    sha256: bytes
    num_bytes: int


class Landing(Protocol):
    """Where shards go. Methods block for the disk and raise DataError if it refuses."""

    corpus: bytes
    """SHA-256 of the manifest."""

    def received(self, index: int) -> int:
        """Bytes of a shard that are there already."""
        ...

    def write(self, index: int, offset: int, data: bytes) -> None:
        """Put bytes behind those that are there."""
        ...

    def finish(self, index: int) -> bool:
        """Whether the bytes that are there, all of them, are right; wrong ones are deleted."""
        ...

    def discard(self, index: int) -> None:
        """Delete what is there of a shard that is not whole."""
        ...
