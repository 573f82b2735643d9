"""What a node and a tracker say to each other, sealed for the holders of the swarm token.

Refuses to know how the bytes travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.errors import MessageTooLarge
from neuroswarm.membership.received import read_record
from neuroswarm.v1 import heartbeat_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.messages import parse
from neuroswarm.wire.sealed_calls import Sealing, check_size, reply_context
from neuroswarm.wire.signed import Signed

TRACKER_PATH = "/v1/tracker"
"""Where a tracker takes requests, by POST."""

_REQUEST_CONTEXT = b"neuroswarm v1 tracker request"
_REPLY_CONTEXT = b"neuroswarm v1 tracker reply"


@dataclass(frozen=True, slots=True)
class Reply:
    """A tracker's answer: verified records, and the asker's address as the tracker saw it."""

    records: tuple[tuple[Signed, Heartbeat], ...]
    observed_host: str


def seal_request(sealer: Sealing, own: Signed) -> bytes:
    """The body of a request by the node whose heartbeat is `own`."""
    request = heartbeat_pb2.TrackerRequest(own=own.to_proto())
    return sealer.seal(request.SerializeToString(), _REQUEST_CONTEXT)


def open_request(sealer: Sealing, body: bytes) -> tuple[Signed, Heartbeat]:
    """The asker's record.

    Raises:
        BadSignature: sealed with another token, or the record's signature does not verify.
        SchemaMismatch: malformed.
        MessageTooLarge: a size is above its limit.
    """
    check_size(body, limits.MAX_TRACKER_BODY_BYTES)
    request = parse(heartbeat_pb2.TrackerRequest, sealer.open(body, _REQUEST_CONTEXT))
    return read_record(request.own)


def seal_reply(
    sealer: Sealing, request: bytes, peers: Iterable[Signed], observed_host: str
) -> bytes:
    """The answer to the request with body `request`; it opens as an answer to no other one."""
    reply = heartbeat_pb2.TrackerReply(
        peers=[peer.to_proto() for peer in peers],
        observed_host=observed_host[: limits.MAX_HOST_CHARS],
    )
    return sealer.seal(reply.SerializeToString(), reply_context(_REPLY_CONTEXT, request))


def open_reply(sealer: Sealing, request: bytes, body: bytes) -> Reply:
    """What a tracker answered to `request`; every record in it is verified.

    Raises:
        BadSignature: sealed with another token or for another request, or a bad record in it.
        SchemaMismatch: malformed.
        MessageTooLarge: a size or the number of peers is above its limit.

    Cost: one Ed25519 verification a peer, about 0.1 ms each; run it off the event loop.
    """
    check_size(body, limits.MAX_TRACKER_BODY_BYTES)
    reply = parse(
        heartbeat_pb2.TrackerReply, sealer.open(body, reply_context(_REPLY_CONTEXT, request))
    )
    if len(reply.peers) > limits.MAX_TRACKER_PEERS:
        raise MessageTooLarge(f"peers: {len(reply.peers)} (limit {limits.MAX_TRACKER_PEERS})")
    if len(reply.observed_host) > limits.MAX_HOST_CHARS:
        raise MessageTooLarge(f"host: {len(reply.observed_host)} (limit {limits.MAX_HOST_CHARS})")
    return Reply(tuple(read_record(peer) for peer in reply.peers), reply.observed_host)
