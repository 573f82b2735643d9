"""What this node has signed in rounds that no checkpoint covers yet, on disk before it is sent.

A node that is restarted, or goes back to an earlier state, says the same again instead of
something else, or nothing: so it never equivocates. Knows nothing of what the statements mean.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.errors import PeerError, WrongPayload
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import HASH_BYTES
from neuroswarm.wire.signed import Kind, Signed, verify

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 8
MAX_WHOLE_ROUNDS = 16
"""Rounds of which it is kept what was said, should no checkpoint come after them."""
KEPT_ROUNDS = 64
"""Rounds of which it is remembered that, though not what, this node has signed: more than a
restart from an older checkpoint goes back."""

_SUFFIX = ".said"


@dataclass(frozen=True, slots=True)
class Said:
    """One statement, with the payload that belongs to a contribution."""

    signed: Signed
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Recollection:
    """What is known of a round in which this node may have spoken before."""

    said: Mapping[Kind, Said] = field(default_factory=dict)
    lost: frozenset[Kind] = frozenset()
    """Kinds that were signed, but what they said is not known any more."""


class SaidLog:
    """One file for each statement; emptied in rounds that a restart does not go back to.

    A file is a SHA-256 over the rest, the length of the statement, the statement, its payload.
    If the whole swarm loses power, its nodes go through the rounds since their checkpoints again,
    which takes what each of them said there.
    """

    def __init__(self, folder: Path) -> None:
        """Use `folder`, created if it is missing; CheckpointError if that fails."""
        self.bytes_written = 0
        """Bytes of statements written since the start."""
        self._folder = folder
        self._needed_from = 0
        with translating("create", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def record(self, round_: int, base_digest: bytes, said: Said) -> None:
        """Write a statement durably; it may be sent once this returns. Blocks for the disk.

        Raises:
            CheckpointError: the disk does not take it; then it must not be sent.
        """
        data = said.signed.to_proto().SerializeToString()
        head = len(data).to_bytes(MAX_HEADER_BYTES, "little") + data
        hasher = hashlib.sha256(head)
        hasher.update(said.payload)
        prefix = _prefix(round_, base_digest)
        path = self._folder / f"{prefix}{said.signed.kind.name.lower()}{_SUFFIX}"
        replace_file(path, hasher.digest(), head, said.payload)
        self.bytes_written += HASH_BYTES + len(head) + len(said.payload)
        self._forget(round_, prefix)

    def forget_before(self, round_: int) -> None:
        """A checkpoint of this round is durable: what was said before it is not needed."""
        self._needed_from = round_

    def recall(self, round_: int, base_digest: bytes) -> Recollection:
        """What was signed about a round. A file that is damaged may have been sent.

        Raises:
            CheckpointError: the folder cannot be listed, so that nothing is known.
        """
        said: dict[Kind, Said] = {}
        lost: set[Kind] = set()
        prefix = _prefix(round_, base_digest)
        with translating("list", self._folder):
            names = [name for _, name in self._names() if name.startswith(prefix)]
        for name in names:
            found = _read(self._folder / name)
            if found is None:
                lost |= _kind_of(name.removeprefix(prefix))
            else:
                said[found.signed.kind] = found
        return Recollection(said, frozenset(lost - said.keys()))

    def newest_round(self, kind: Kind) -> int:
        """The newest round in which something of that kind was signed; -1 if none is known."""
        try:
            rounds = [
                r for r, name in self._names() if name.endswith(f"-{kind.name.lower()}{_SUFFIX}")
            ]
        except OSError:
            return -1
        return max(rounds, default=-1)

    def _forget(self, round_: int, current: str) -> None:
        """Give the space of other rounds back; their files' names stay for a while."""
        needed_from = max(self._needed_from, round_ - MAX_WHOLE_ROUNDS)
        try:
            for leftover in self._folder.glob(f"*{_SUFFIX}.*"):
                leftover.unlink()
            for number, name in self._names():
                path = self._folder / name
                if number < round_ - KEPT_ROUNDS:
                    path.unlink()
                elif number < needed_from and not name.startswith(current) and path.stat().st_size:
                    os.truncate(path, 0)
        except OSError as error:
            logger.warning("cannot give up %s: %s", error.filename, error.strerror)

    def _names(self) -> Iterator[tuple[int, str]]:
        """Round and name of every statement's file."""
        for name in sorted(os.listdir(self._folder)):
            number = name.partition("-")[0]
            if name.endswith(_SUFFIX) and number.isdecimal():
                yield int(number), name


def _prefix(round_: int, base_digest: bytes) -> str:
    return f"{round_}-{base_digest.hex()[:16]}-"


def _kind_of(ending: str) -> set[Kind]:
    return {kind for kind in Kind if ending == f"{kind.name.lower()}{_SUFFIX}"}


def _read(path: Path) -> Said | None:
    try:
        raw = path.read_bytes()
        if not raw:
            return None
        content = raw[HASH_BYTES:]
        if hashlib.sha256(content).digest() != raw[:HASH_BYTES]:
            raise WrongPayload("not the bytes that were written")
        end = MAX_HEADER_BYTES + int.from_bytes(content[:MAX_HEADER_BYTES], "little")
        message = envelope_pb2.Signed.FromString(content[MAX_HEADER_BYTES:end])
        return Said(verify(message), content[end:])
    except (OSError, DecodeError, PeerError) as error:
        logger.warning("statement in %s is damaged: %s", path, error)
        return None
