"""What nodes publish of themselves in the DHT, and under which keys: values and checked bytes.

Every `decode_*` takes the body of a verified statement. Refuses to know who keeps what.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
from dataclasses import dataclass, replace

from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.v1 import dht_pb2
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_count, check_finite, check_hash, check_length, check_text
from neuroswarm.wire.hosts import is_host
from neuroswarm.wire.messages import parse

KEY_BYTES = NODE_ID_BYTES
"""Keys and node ids are points of one space."""

_ADDRESS_BYTES = (4, 16)
_PLAIN = (
    "swarm_id", "fragment", "sequence", "expires_at", "is_withdrawn", "grpc_port",
    "heartbeat_port", "dht_port", "http_port", "protocol", "is_unreachable", "is_training",
    "available_memory_mb", "tokens_per_s", "first_fragment", "num_fragments", "round", "digest",
)  # fmt: skip


class Scope(enum.IntEnum):
    """Which key a record is stored under; numbers are those of `neuroswarm.v1.DhtScope`."""

    SWARM = 1
    FRAGMENT = 2
    NODE = 3


@dataclass(frozen=True, slots=True)
class DhtContact:
    """Where a node takes DHT datagrams."""

    endpoint: Endpoint
    sequence: int

    def encode(self) -> bytes:
        """The body to sign; an address takes 4 or 16 bytes, so that 8 contacts fit a datagram."""
        proto = dht_pb2.DhtContact(port=self.endpoint.port, sequence=self.sequence)
        try:
            proto.address = ipaddress.ip_address(self.endpoint.host).packed
        except ValueError:
            proto.name = self.endpoint.host
        return proto.SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Relay:
    """A node through which another one is reached."""

    node_id: NodeId
    endpoint: Endpoint
    """Where it answers calls."""


@dataclass(frozen=True, slots=True)
class DhtRecord:
    """What a node says of itself under one key."""

    swarm_id: bytes
    scope: Scope
    fragment: int = 0
    """Index, with the scope `FRAGMENT`."""
    sequence: int = 0
    expires_at: float = 0.0
    """Seconds since 1970 by the swarm's clocks."""
    is_withdrawn: bool = False
    hosts: tuple[str, ...] = ()
    """Where it is reached, best first, at most 4."""
    grpc_port: int = 0
    heartbeat_port: int = 0
    dht_port: int = 0
    """0 for a client, which keeps nothing for others."""
    http_port: int = 0
    protocol: int = 0
    is_unreachable: bool = False
    """Peers cannot dial it, only reach it through its relays."""
    relays: tuple[Relay, ...] = ()
    """At most 3."""
    is_training: bool = False
    available_memory_mb: int = 0
    tokens_per_s: float = 0.0
    first_fragment: int = 0
    num_fragments: int = 0
    round: int = 0
    digest: bytes = b""
    """Of the outer state held, 32 bytes, or empty."""

    @property
    def heartbeat_endpoints(self) -> tuple[Endpoint, ...]:
        """Where it takes heartbeats, best first; none if it takes none."""
        port = self.heartbeat_port
        return tuple(Endpoint(host, port) for host in self.hosts) if port else ()

    def under(self, scope: Scope, fragment: int = 0) -> DhtRecord:
        """The same of the same node, under another key."""
        return replace(self, scope=scope, fragment=fragment)

    def key(self, signer: NodeId) -> bytes:
        """The key under which this record of `signer` is stored, 20 bytes."""
        if self.scope is Scope.SWARM:
            return swarm_key(self.swarm_id)
        if self.scope is Scope.FRAGMENT:
            return fragment_key(self.swarm_id, self.fragment)
        return node_key(self.swarm_id, signer)

    def encode(self) -> bytes:
        """The body to sign."""
        scope = dht_pb2.DhtScope.Name(self.scope)
        proto = dht_pb2.DhtRecord(hosts=self.hosts, scope=scope)
        for name in _PLAIN:
            setattr(proto, name, getattr(self, name))
        for relay in self.relays:
            host, port = relay.endpoint
            proto.relays.add(node_id=relay.node_id, host=host, grpc_port=port)
        return proto.SerializeToString(deterministic=True)


def swarm_key(swarm_id: bytes) -> bytes:
    """Key of all nodes of a swarm, 20 bytes."""
    return _key(b"swarm", swarm_id)


def fragment_key(swarm_id: bytes, fragment: int) -> bytes:
    """Key of the nodes that host one fragment of a swarm's model, 20 bytes."""
    return _key(b"fragment", swarm_id + fragment.to_bytes(4, "little"))


def node_key(swarm_id: bytes, node_id: NodeId) -> bytes:
    """Key under which only this node's records are kept, 20 bytes."""
    return _key(b"node", swarm_id + node_id)


def decode_dht_contact(body: bytes) -> DhtContact:
    """Read a contact; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(dht_pb2.DhtContact, body)
    check_count("port", m.port, 65535)
    check_count("sequence", m.sequence, limits.MAX_COUNT)
    if not m.port:
        raise SchemaMismatch("contact without a port")
    if m.address:
        if len(m.address) not in _ADDRESS_BYTES or m.name:
            raise SchemaMismatch(f"contact with an address of {len(m.address)} bytes")
        host = _checked_host(str(ipaddress.ip_address(m.address)))
    else:
        host = _checked_host(m.name)
    return DhtContact(Endpoint(host, m.port), m.sequence)


def decode_dht_record(body: bytes) -> DhtRecord:
    """Read a record.

    Raises:
        SchemaMismatch: malformed.
        MessageTooLarge: a number or count is out of bounds.
        ProtocolViolation: of a scope that this version does not know.
    """
    m = parse(dht_pb2.DhtRecord, body)
    check_hash("swarm id", m.swarm_id)
    if m.digest:
        check_hash("digest", m.digest)
    try:
        scope = Scope(m.scope)
    except ValueError as error:
        raise ProtocolViolation(f"record of an unknown scope: {m.scope}") from error
    if scope is not Scope.FRAGMENT and m.fragment:
        raise SchemaMismatch(f"record of a {scope.name.lower()} with fragment {m.fragment}")
    check_count("fragment", m.fragment, limits.MAX_FRAGMENTS - 1)
    check_count("hosted fragments", m.first_fragment + m.num_fragments, limits.MAX_FRAGMENTS)
    for name in ("grpc_port", "heartbeat_port", "dht_port", "http_port", "protocol"):
        check_count(name, getattr(m, name), 65535)
    for name in ("sequence", "round", "available_memory_mb"):
        check_count(name, getattr(m, name), limits.MAX_COUNT)
    for name in ("expires_at", "tokens_per_s"):
        check_finite(name, getattr(m, name))
    check_count("hosts", len(m.hosts), limits.MAX_DHT_HOSTS)
    hosts = tuple(_checked_host(host) for host in m.hosts)
    check_count("relays", len(m.relays), limits.MAX_DHT_RELAYS)
    relays = tuple(_decode_relay(relay) for relay in m.relays)
    plain = {name: getattr(m, name) for name in _PLAIN}
    return DhtRecord(scope=scope, hosts=hosts, relays=relays, **plain)


def _decode_relay(m: dht_pb2.DhtRelay) -> Relay:
    check_length("relay's node id", m.node_id, NODE_ID_BYTES)
    check_count("relay's port", m.grpc_port, 65535)
    return Relay(NodeId(m.node_id), Endpoint(_checked_host(m.host), m.grpc_port))


def _checked_host(host: str) -> str:
    check_text("host", host, limits.MAX_DHT_HOST_CHARS)
    if not is_host(host):
        raise SchemaMismatch(f"not a host: {host!r}")
    return host


def _key(what: bytes, name: bytes) -> bytes:
    return hashlib.sha256(b"neuroswarm v1 dht " + what + b"\0" + name).digest()[:KEY_BYTES]
