"""What nodes say to each other about reaching each other: bytes to values, checked.

Refuses to know who asks, and how a call back is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.errors import SchemaMismatch
from neuroswarm.v1 import reach_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.hosts import is_host
from neuroswarm.wire.messages import parse

MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class DialReply:
    """Where a node that asked was reached, or why it was not."""

    reached_host: str = ""
    reason: str = ""

    def encode(self) -> bytes:
        """The wire form; a longer reason is cut."""
        return reach_pb2.DialReply(
            reached_host=self.reached_host, reason=self.reason[:MAX_REASON_CHARS]
        ).SerializeToString()


def decode_dial_reply(data: bytes) -> DialReply:
    """Read an answer; SchemaMismatch if it is malformed or out of bounds."""
    m = parse(reach_pb2.DialReply, data)
    if m.reached_host and not is_host(m.reached_host):
        raise SchemaMismatch(f"not a host: {m.reached_host[: limits.MAX_HOST_CHARS]!r}")
    if len(m.reason) > MAX_REASON_CHARS:
        raise SchemaMismatch(f"reason: {len(m.reason)} characters (at most {MAX_REASON_CHARS})")
    return DialReply(m.reached_host, m.reason)
