"""A state on its way in: its memory, and a file that a restarted joiner goes on from.

Every piece is checked by its hash before it is kept, whether it comes from a peer or from the
disk. Where the disk refuses, memory alone has to do. Knows nothing of peers. All of it blocks:
for worker threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

import torch

from neuroswarm.diloco.pieces import Span, cut
from neuroswarm.diloco.state import FragmentState, OuterState
from neuroswarm.errors import ProtocolViolation
from neuroswarm.hardware import large_tensors
from neuroswarm.hardware.file_access import BINARY, read_at, write_at
from neuroswarm.transfer.state_manifest import StateManifest
from neuroswarm.values import HASH_BYTES

logger = logging.getLogger(__name__)

MAX_INCOMING = 2
"""Unfinished states kept on disk; older ones are removed."""

SPARE_BYTES = 64 * 1024 * 1024
"""Disk space that is left for others."""


class IncomingState:
    """The pieces that are there so far. Its memory is that of the state itself."""

    def __init__(self, manifest: StateManifest, path: Path | None = None) -> None:
        """Start with nothing, or with what the file at `path` holds; None: without a file."""
        self.manifest = manifest
        sizes = [num_params for _, num_params in manifest.shape]
        self._params = [large_tensors.empty(size) for size in sizes]
        self._momentum = [large_tensors.empty(size) for size in sizes]
        self._path = path
        self._file: int | None = None
        self._lock = threading.Lock()

    def recover(self) -> list[int]:
        """Open the file; returns the pieces that it holds already, in order."""
        if self._path is None:
            return []
        size = self.manifest.layout.num_bytes
        try:
            is_new = not self._path.exists()
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY, 0o600)
            if is_new:
                os.truncate(self._file, size)
                return []
            os.utime(self._path)
            return [p for p in range(self.manifest.layout.num_pieces) if self._read(p)]
        except OSError as error:
            self._do_without_file(error)
            return []

    def place(self, piece: int, data: bytes | bytearray) -> bool:
        """Keep a piece if it is the one promised."""
        if hashlib.sha256(data).digest() != self.manifest.hash_of(piece):
            return False
        span = self.manifest.layout.locate(piece)
        self._copy(span, data)
        with self._lock:
            if self._file is not None:
                try:
                    _write(self._file, data, span.at)
                except OSError as error:
                    self._do_without_file(error)
        return True

    def finish(self) -> OuterState:
        """The state, once every piece is there; not to be used after.

        Raises:
            ProtocolViolation: it is the one asked for, but no state that a swarm can have.
        """
        fragments = []
        for (name, _), params, momentum in zip(
            self.manifest.shape, self._params, self._momentum, strict=True
        ):
            for values in (params, momentum):
                if not bool(torch.isfinite(values).all()):
                    raise ProtocolViolation(f"fragment {name} is not finite")
            fragments.append(FragmentState(name, params, momentum))
        return self.manifest.complete(tuple(fragments))

    def close(self) -> None:
        """Close the file; it stays for the next time."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _read(self, piece: int) -> bool:
        assert self._file is not None, "recover opened it"
        span = self.manifest.layout.locate(piece)
        data = read_at(self._file, span.num_bytes, span.at)
        if hashlib.sha256(data).digest() != self.manifest.hash_of(piece):
            return False
        self._copy(span, data)
        return True

    def _copy(self, span: Span, data: bytes | bytearray) -> None:
        start = 0
        for part in self._cut(span):
            part[:] = memoryview(data)[start : start + len(part)]
            start += len(part)

    def _cut(self, span: Span) -> Iterable[memoryview]:
        return cut(self._params[span.fragment], self._momentum[span.fragment], span.start, span.end)

    def _do_without_file(self, error: OSError) -> None:
        logger.warning(
            "the download goes on in memory alone, a restart would begin anew: cannot write %s: %s",
            self._path,
            error.strerror or error,
        )
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


class IncomingFolder:
    """Where unfinished states lie, by digest."""

    def __init__(self, path: Path | None) -> None:
        """Use the folder at `path`, which need not be there yet; None: keep nothing."""
        self._path = path

    def open(self, manifest: StateManifest) -> IncomingState:
        """A state on its way in, with a file if there is room for one."""
        if self._path is None:
            return IncomingState(manifest)
        path = self._path / manifest.digest.hex()
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
            for other in [f for f in self._files() if f != path][MAX_INCOMING - 1 :]:
                other.unlink(missing_ok=True)
            needed = 0 if path.exists() else manifest.layout.num_bytes + SPARE_BYTES
            free = shutil.disk_usage(self._path).free
        except OSError as error:
            logger.warning("the download is kept in memory alone: %s", error)
            return IncomingState(manifest)
        if free < needed:
            logger.warning(
                "the download is kept in memory alone: %d MB free in %s (needs %d)",
                free // 10**6,
                self._path,
                needed // 10**6,
            )
            return IncomingState(manifest)
        return IncomingState(manifest, path)

    def digests(self) -> list[bytes]:
        """Of unfinished states, the latest first."""
        return [bytes.fromhex(path.name) for path in self._files()]

    def remove(self, digest: bytes) -> None:
        """Forget a state."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                (self._path / digest.hex()).unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        if self._path is None:
            return []
        try:
            found = [(f.stat().st_mtime_ns, f) for f in self._path.iterdir() if _is_digest(f.name)]
        except OSError:
            return []
        return [path for _, path in sorted(found, reverse=True)]


def _is_digest(name: str) -> bool:
    return len(name) == 2 * HASH_BYTES and all(digit in "0123456789abcdef" for digit in name)


def _write(file: int, data: bytes | bytearray, at: int) -> None:
    view = memoryview(data)
    while view:
        written = write_at(file, view, at)
        view, at = view[written:], at + written
