"""What this node has signed in the round in progress, on disk before it is sent.

A node that is restarted in the middle of a round says the same again instead of something else,
so that it never equivocates. Knows nothing of what the statements mean.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.errors import PeerError
from neuroswarm.v1 import envelope_pb2
from neuroswarm.wire.signed import Kind, Signed, verify

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 8
_SUFFIX = ".said"


@dataclass(frozen=True, slots=True)
class Said:
    """One statement, with the payload that belongs to a contribution."""

    signed: Signed
    payload: bytes = b""


class SaidLog:
    """One file for each statement of the newest round that this node spoke in."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, created if it is missing; CheckpointError if that fails."""
        self._folder = folder
        with translating("create", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def record(self, round_: int, base_digest: bytes, said: Said) -> None:
        """Write a statement durably; it may be sent once this returns. Blocks for the disk.

        Raises:
            CheckpointError: the disk does not take it; then it must not be sent.
        """
        data = said.signed.to_proto().SerializeToString()
        framed = len(data).to_bytes(MAX_HEADER_BYTES, "little") + data + said.payload
        replace_file(self._path(round_, base_digest, said.signed.kind), framed)

    def recall(self, round_: int, base_digest: bytes) -> dict[Kind, Said]:
        """What was signed about a round, by kind; drops what is about other rounds.

        A file that cannot be read whole was never sent, as it is written before; it is dropped.
        """
        found = {}
        prefix = self._prefix(round_, base_digest)
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            said = _read(path) if path.name.startswith(prefix) else None
            if said is None:
                _drop(path)
            else:
                found[said.signed.kind] = said
        return found

    def _path(self, round_: int, base_digest: bytes, kind: Kind) -> Path:
        return self._folder / f"{self._prefix(round_, base_digest)}{kind.name.lower()}{_SUFFIX}"

    def _prefix(self, round_: int, base_digest: bytes) -> str:
        return f"{round_}-{base_digest.hex()[:16]}-"


def _read(path: Path) -> Said | None:
    try:
        raw = path.read_bytes()
        end = MAX_HEADER_BYTES + int.from_bytes(raw[:MAX_HEADER_BYTES], "little")
        message = envelope_pb2.Signed.FromString(raw[MAX_HEADER_BYTES:end])
        return Said(verify(message), raw[end:])
    except (OSError, DecodeError, PeerError) as error:
        logger.warning("statement in %s is damaged and dropped: %s", path, error)
        return None


def _drop(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error.strerror)
