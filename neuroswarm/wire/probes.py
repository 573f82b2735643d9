"""What is said to find out how the way to a node is: whether large packets pass, who sees what.

Refuses to know how the bytes travel, and what follows from the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.v1 import probe_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_instant
from neuroswarm.wire.messages import parse
from neuroswarm.wire.sealed_calls import Sealing, check_size, reply_context

PROBE_PATH = "/v1/probe"
"""Where a node or tracker takes probes over HTTP, by POST."""

_REQUEST_CONTEXT = b"neuroswarm v1 probe request"
_REPLY_CONTEXT = b"neuroswarm v1 probe reply"
_FIELDS_BYTES = 512
"""Room for everything but padding and peers."""

_MAX_REPLY_BYTES = limits.MAX_PROBE_BYTES + 4096
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Where a node is reached; a port of 0 is none."""

    host: str
    http_port: int
    grpc_port: int
    heartbeat_port: int


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """What the asked node answers."""

    time: float
    """Its wall clock, seconds since 1970."""
    observed: Endpoint
    """The asker's address and port as it was seen; port 0 over HTTP."""
    grpc_port: int = 0
    """Of the asked node; 0 in a datagram and of a bare tracker."""
    heartbeat_port: int = 0
    peers: tuple[Neighbour, ...] = ()
    """Some live nodes, at most 4; none in a datagram."""


def seal_probe(sealer: Sealing, *, num_bytes: int = 0, answer_bytes: int = 0) -> bytes:
    """A request with so much padding, which wants an answer with so much.

    Raises:
        ValueError: above 64 KiB.
    """
    if max(num_bytes, answer_bytes) > limits.MAX_PROBE_BYTES:
        raise ValueError(
            f"probe of {max(num_bytes, answer_bytes)} bytes (limit {limits.MAX_PROBE_BYTES})"
        )
    request = probe_pb2.ProbeRequest(answer_bytes=answer_bytes, padding=bytes(num_bytes))
    return sealer.seal(request.SerializeToString(), _REQUEST_CONTEXT)


def open_probe(sealer: Sealing, body: bytes) -> int:
    """The padding that the asker wants in the answer, bytes.

    Raises:
        BadSignature: sealed with another token, or no probe.
        SchemaMismatch: malformed.
        MessageTooLarge: a size is above its limit.
    """
    check_size(body, limits.MAX_PROBE_BYTES + _FIELDS_BYTES)
    request = parse(probe_pb2.ProbeRequest, sealer.open(body, _REQUEST_CONTEXT))
    if request.answer_bytes > limits.MAX_PROBE_BYTES:
        raise MessageTooLarge(
            f"answer wanted: {request.answer_bytes} bytes (limit {limits.MAX_PROBE_BYTES})"
        )
    return int(request.answer_bytes)


def seal_probe_reply(
    sealer: Sealing, request: bytes, reply: ProbeReply, *, num_bytes: int = 0
) -> bytes:
    """The answer to the probe with body `request`, with so much padding."""
    message = probe_pb2.ProbeReply(
        time=reply.time,
        observed_host=reply.observed.host[: limits.MAX_HOST_CHARS],
        observed_port=reply.observed.port,
        grpc_port=reply.grpc_port,
        heartbeat_port=reply.heartbeat_port,
        peers=_encode(reply.peers),
        padding=bytes(num_bytes),
    )
    return sealer.seal(message.SerializeToString(), reply_context(_REPLY_CONTEXT, request))


def open_probe_reply(sealer: Sealing, request: bytes, body: bytes) -> ProbeReply:
    """What was answered to `request`.

    Raises:
        BadSignature: sealed with another token or for another request.
        SchemaMismatch: malformed.
        MessageTooLarge: a size is above its limit.
    """
    check_size(body, _MAX_REPLY_BYTES)
    m = parse(probe_pb2.ProbeReply, sealer.open(body, reply_context(_REPLY_CONTEXT, request)))
    if len(m.peers) > limits.MAX_PROBE_PEERS:
        raise MessageTooLarge(f"peers: {len(m.peers)} (limit {limits.MAX_PROBE_PEERS})")
    check_instant("time", m.time)
    return ProbeReply(
        m.time,
        Endpoint(_read_host(m.observed_host), _read_port(m.observed_port)),
        _read_port(m.grpc_port),
        _read_port(m.heartbeat_port),
        tuple(_read_neighbour(peer) for peer in m.peers),
    )


def _encode(peers: Iterable[Neighbour]) -> list[probe_pb2.ProbePeer]:
    return [
        probe_pb2.ProbePeer(
            host=peer.host[: limits.MAX_HOST_CHARS],
            http_port=peer.http_port,
            grpc_port=peer.grpc_port,
            heartbeat_port=peer.heartbeat_port,
        )
        for peer in peers
    ][: limits.MAX_PROBE_PEERS]


def _read_neighbour(peer: probe_pb2.ProbePeer) -> Neighbour:
    return Neighbour(
        _read_host(peer.host),
        _read_port(peer.http_port),
        _read_port(peer.grpc_port),
        _read_port(peer.heartbeat_port),
    )


def _read_host(host: str) -> str:
    if len(host) > limits.MAX_HOST_CHARS:
        raise MessageTooLarge(f"host: {len(host)} characters (limit {limits.MAX_HOST_CHARS})")
    if not host.isprintable() or not host.isascii():
        raise SchemaMismatch(f"host: {host!r} (printable ASCII)")
    return host


def _read_port(port: int) -> int:
    if port > _MAX_PORT:
        raise SchemaMismatch(f"port: {port} (at most {_MAX_PORT})")
    return port
