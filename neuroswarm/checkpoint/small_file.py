"""One small file of a node's folder, read whole and replaced whole.

Knows nothing of what is in it.
"""

from __future__ import annotations

from pathlib import Path

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.errors import CheckpointError


class SmallFile:
    """A file of at most so many bytes."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self.bytes_written = 0
        """Bytes written since the start."""

    def read(self) -> bytes | None:
        """Its bytes; None if there is none. Blocks for the disk.

        Raises:
            CheckpointError: the disk refuses, or it is too large.
        """
        with translating("read", self._path):
            try:
                with self._path.open("rb") as file:
                    data = file.read(self._max_bytes + 1)
            except FileNotFoundError:
                return None
        if len(data) > self._max_bytes:
            raise CheckpointError(f"{self._path} too large: over {self._max_bytes} bytes")
        return data

    def write(self, data: bytes) -> None:
        """Replace it, so that a power cut leaves the old bytes or the new. Blocks for the disk.

        Raises:
            CheckpointError: the disk refuses; the old bytes are still there.
            ValueError: it is too much.
        """
        if len(data) > self._max_bytes:
            raise ValueError(f"too much for {self._path}: {len(data)} (limit {self._max_bytes})")
        replace_file(self._path, data)
        self.bytes_written += len(data)
