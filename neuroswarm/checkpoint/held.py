"""The contributions of others that this node's ballot names, on disk before the ballot is sent.

So whatever two thirds of the ballots name outlives a power cut of the whole swarm, though their
authors never come back. Knows nothing of what is agreed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from neuroswarm.checkpoint.durable import translating
from neuroswarm.errors import PeerError
from neuroswarm.hardware.disk import sync
from neuroswarm.v1 import envelope_pb2
from neuroswarm.wire.signed import Signed, verify

logger = logging.getLogger(__name__)

MAX_ROUNDS = 16
"""Rounds kept at most, should no checkpoint come after them."""

_LENGTH_BYTES = 8
_SUFFIX = ".held"

Held = tuple[Signed, bytes]
"""A signed header and the payload that belongs to it."""


class HeldLog:
    """One file for each round and base: headers and payloads, one after the other.

    Threads: any; methods wait for one another.
    """

    def __init__(self, folder: Path) -> None:
        """Use `folder`, created if it is missing; CheckpointError if that fails."""
        self._folder = folder
        self._lock = threading.Lock()
        self.bytes_written = 0
        """Since the start."""
        self.has_room: Callable[[int], bool] = lambda _num_bytes: True
        """Whether the day's budget has so many bytes."""
        with translating("create", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def record(self, round_: int, base_digest: bytes, held: Collection[Held]) -> int:
        """Write contributions durably, in place of what was there; returns the bytes written.

        Where the budget does not have the bytes nothing is written: on an SD card its life goes
        before a power cut of the whole swarm of which an author never comes back.

        Raises:
            CheckpointError: the disk does not take it; what was there is as it was.

        Cost: blocks for the disk; a pass over the payloads, no copy of them.
        """
        if not self.has_room(sum(len(payload) for _, payload in held)):
            return 0
        path = self._path(round_, base_digest)
        temporary = path.with_name(path.name + ".tmp")
        with self._lock, translating("write", path):
            try:
                with temporary.open("wb") as file:
                    for signed, payload in held:
                        _write(file, signed.to_proto().SerializeToString())
                        _write(file, payload)
                    num_bytes = file.tell()
                sync(temporary)
                temporary.replace(path)
                sync(self._folder)
            except OSError:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            self.bytes_written += num_bytes
            self._prune(round_ - MAX_ROUNDS)
        return num_bytes

    def recall(self, round_: int, base_digest: bytes) -> list[Held]:
        """What was held, as far as it can be read; signatures verified, payloads not checked.

        Cost: the whole file in memory.
        """
        path = self._path(round_, base_digest)
        held: list[Held] = []
        try:
            with path.open("rb") as file:
                pieces = _read_all(file)
                for header, payload in zip(pieces, pieces, strict=True):
                    held.append((verify(envelope_pb2.Signed.FromString(header)), payload))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, DecodeError, PeerError) as error:
            logger.warning("contributions in %s are damaged: %s", path, error)
        return held

    def forget_before(self, round_: int) -> None:
        """Rounds before this one are in a checkpoint: their contributions are not needed."""
        with self._lock:
            self._prune(round_)

    def _prune(self, first: int) -> None:
        try:
            for name in os.listdir(self._folder):
                number = name.partition("-")[0]
                is_ours = number.isdecimal() and _SUFFIX in name
                if is_ours and (int(number) < first or not name.endswith(_SUFFIX)):
                    (self._folder / name).unlink()
        except OSError as error:
            logger.warning("cannot give up %s: %s", error.filename, error.strerror)

    def _path(self, round_: int, base_digest: bytes) -> Path:
        return self._folder / f"{round_}-{base_digest.hex()[:16]}{_SUFFIX}"


def _write(file: BinaryIO, piece: bytes) -> None:
    file.write(len(piece).to_bytes(_LENGTH_BYTES, "little"))
    file.write(piece)


def _read_all(file: BinaryIO) -> Iterator[bytes]:
    """Every piece; ValueError if the last one is cut short."""
    left = os.fstat(file.fileno()).st_size
    while left:
        size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        left -= _LENGTH_BYTES + size
        if left < 0:
            raise ValueError("the last piece is cut short")
        yield file.read(size)
