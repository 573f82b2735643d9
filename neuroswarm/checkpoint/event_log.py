"""The node's event log: JSON lines in one file and the full one before it, for people and programs.

Trouble with the disk is said once, and what could not be written waits, within bounds. Knows
nothing of what the events mean.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from neuroswarm.checkpoint.complaint import Complaint
from neuroswarm.clock import Clock
from neuroswarm.errors import CheckpointError
from neuroswarm.hardware.file_access import read_at

logger = logging.getLogger(__name__)

MAX_WAITING = 256
"""Events kept in memory while the disk refuses; beyond that the oldest are lost."""

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Bytes from which on a new file is begun; a round of six peers takes about 1,400."""


class EventLog:
    """Appends to one file; a full one is kept as `<name>.1.jsonl` instead of the one before it.

    Threads: any; `append` blocks for the disk.
    """

    def __init__(self, path: Path, *, clock: Clock, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self.bytes_written = 0
        """Bytes appended since the start."""
        self._path = path
        self._max_file_bytes = max_file_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._complaint = Complaint(logger, "events wait in memory; training goes on")

    def append(self, event: Mapping[str, object]) -> None:
        """Write an event, after those that wait; JSON values without NaN. Never raises OSError."""
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        now = self._clock.monotonic()
        with self._lock:
            self._waiting.append(line)
            if self._complaint.is_pausing(now):
                return
            try:
                self._write(b"".join(self._waiting))
            except OSError as error:
                reason = CheckpointError(f"cannot write {self._path}: {error.strerror or error}")
                self._complaint.failed(reason, now)
            else:
                self._waiting.clear()
                self._complaint.worked(f"writing {self._path}")

    def _write(self, data: bytes) -> None:
        """All of it or nothing; a line that a killed writer left half is ended first."""
        if self._path.exists() and self._path.stat().st_size >= self._max_file_bytes:
            self._path.replace(self._path.with_suffix(".1.jsonl"))
        with self._path.open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and read_at(file.fileno(), 1, size - 1) != b"\n":
                data = b"\n" + data
            left = memoryview(data)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(size)
                raise
        self.bytes_written += len(data)
