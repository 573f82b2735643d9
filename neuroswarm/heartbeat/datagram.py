"""What one heartbeat datagram holds, and the reading of a received one.

Refuses to know when it is sent and to whom.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.heartbeat.links import Hears
from neuroswarm.v1 import envelope_pb2, heartbeat_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import Signed

_HEARS = frozenset(map(int, Hears))


class Datagram(NamedTuple):
    """A received datagram; none of its records is verified yet."""

    own: envelope_pb2.Signed
    """The sender's record."""
    heard: list[envelope_pb2.Signed]
    """Others' records, at most 3."""
    hears: Hears
    """Whether the sender hears the receiver."""


def encode_datagram(own: Signed, heard: Iterable[Signed], hears: Hears = Hears.UNKNOWN) -> bytes:
    """The sender's record and as many of the `heard` ones as fit, at most 3."""
    says = heartbeat_pb2.Hears.Name(hears)
    message = heartbeat_pb2.HeartbeatDatagram(own=own.to_proto(), hears=says)
    for other in heard:
        if len(message.heard) == limits.MAX_HEARD:
            break
        message.heard.append(other.to_proto())
        if message.ByteSize() > limits.MAX_DATAGRAM_BYTES:
            del message.heard[-1]
            break
    return message.SerializeToString()


def decode_datagram(data: bytes) -> Datagram:
    """Read what `encode_datagram` wrote.

    Raises:
        MessageTooLarge: above `limits.MAX_DATAGRAM_BYTES`, or more than 3 heard records.
        SchemaMismatch: malformed, or without the sender's own record.
    """
    if len(data) > limits.MAX_DATAGRAM_BYTES:
        raise MessageTooLarge(f"datagram: {len(data)} bytes (limit {limits.MAX_DATAGRAM_BYTES})")
    message = parse(heartbeat_pb2.HeartbeatDatagram, data)
    if not message.HasField("own"):
        raise SchemaMismatch("heartbeat datagram without its sender's record")
    if len(message.heard) > limits.MAX_HEARD:
        raise MessageTooLarge(f"heard records: {len(message.heard)} (limit {limits.MAX_HEARD})")
    says = int(message.hears)  # of a later version if it is none of those known
    hears = Hears(says) if says in _HEARS else Hears.UNKNOWN
    return Datagram(message.own, list(message.heard), hears)
