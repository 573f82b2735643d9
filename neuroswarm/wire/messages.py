"""Bodies of signed statements as frozen values, and their checked conversion from and to bytes.

Every `decode_*` takes the body of a verified statement and refuses what is out of its limits.
Knows nothing of rounds in progress: freshness and agreement are judged elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from neuroswarm.errors import SchemaMismatch
from neuroswarm.hardware.device_class import NUMBERS, OF_NUMBER, DeviceClass
from neuroswarm.v1 import heartbeat_pb2, rounds_pb2
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_count, check_finite, check_hash, check_instant, check_text
from neuroswarm.wire.hosts import is_host

M = TypeVar("M", bound=Message)

_REACHES = frozenset(map(int, Reach))


@dataclass(frozen=True, slots=True)
class FragmentPayload:
    """One fragment's part of a contribution: index, hash and size of its coded bytes."""

    fragment: int
    payload_hash: bytes
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """Header of one node's pseudo-gradient of a round."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    architecture: bytes
    codec: str
    inner_steps: int
    tokens: int
    loss: float
    fragments: tuple[FragmentPayload, ...]

    @property
    def payload_bytes(self) -> int:
        """Coded bytes of all fragments together."""
        return sum(part.payload_bytes for part in self.fragments)

    def encode(self) -> bytes:
        """The body to sign."""
        parts = [
            rounds_pb2.FragmentPayload(
                fragment=p.fragment, payload_hash=p.payload_hash, payload_bytes=p.payload_bytes
            )
            for p in self.fragments
        ]
        return rounds_pb2.Contribution(
            swarm_id=self.swarm_id,
            round=self.round,
            base_digest=self.base_digest,
            architecture=self.architecture,
            codec=self.codec,
            inner_steps=self.inner_steps,
            tokens=self.tokens,
            loss=self.loss,
            fragments=parts,
        ).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Skip:
    """The signer publishes nothing in this round."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_progress(rounds_pb2.Skip(), self)


@dataclass(frozen=True, slots=True)
class Ready:
    """The signer has taken the round's inner steps."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    inner_steps: int

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_progress(rounds_pb2.Ready(), self)


@dataclass(frozen=True, slots=True)
class Seal:
    """The signer takes no further contributions to this round."""

    swarm_id: bytes
    round: int
    base_digest: bytes

    def encode(self) -> bytes:
        """The body to sign."""
        return rounds_pb2.Seal(
            swarm_id=self.swarm_id, round=self.round, base_digest=self.base_digest
        ).SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Amendment:
    """The owner proposes other rules for the swarm; `rules` are not read yet."""

    swarm_id: bytes
    rules: bytes

    def encode(self) -> bytes:
        """The body to sign."""
        return rounds_pb2.Amendment(swarm_id=self.swarm_id, rules=self.rules).SerializeToString(
            deterministic=True
        )


@dataclass(frozen=True, slots=True)
class Ballot:
    """Ids of the contributions that the signer holds whole, ascending."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: tuple[bytes, ...]

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_list(rounds_pb2.Ballot(), self)


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ids of the contributions that the signer finds agreed, ascending."""

    swarm_id: bytes
    round: int
    base_digest: bytes
    contributions: tuple[bytes, ...]

    @property
    def set_hash(self) -> bytes:
        """SHA-256 over the ids: the name of the set. 32 bytes."""
        return set_hash(self.contributions)

    def encode(self) -> bytes:
        """The body to sign."""
        return _encode_list(rounds_pb2.Confirm(), self)


_CONVERTED = ("relays", "reach", "other_hosts", "device_class")
"""Fields of a heartbeat whose values differ from those on the wire."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node's record of itself (REQUIREMENTS N6 plus round, digest and speed)."""

    swarm_id: bytes
    """32 bytes, or empty for a bare tracker."""
    sequence: int
    time: float
    host: str
    grpc_port: int
    heartbeat_port: int
    http_port: int
    protocol: int
    is_training: bool
    available_memory_mb: int = 0
    queue_depth: int = 0
    first_fragment: int = 0
    num_fragments: int = 0
    uses_accelerator: bool = False
    network_saturation: float = 0.0
    accepts_inference: bool = False
    accepts_activations: bool = False
    round: int = 0
    digest: bytes = field(default=b"")
    """Digest of the outer state held, 32 bytes, or empty before the genesis."""
    tokens_per_s: float = 0.0
    inner_steps: int = 0
    is_leaving: bool = False
    instance: bytes = b""
    """Drawn anew whenever the node starts or wakes, 8 bytes; empty from nodes that have none."""
    twin: bytes = b""
    """Instance of another record under the signer's own key that it heard of; else empty."""
    is_settled: bool = False
    """Whether it takes part in rounds, or has since the instance was drawn."""
    dht_port: int = 0
    """Where it takes DHT datagrams; 0 if it has no DHT."""
    relays: tuple[NodeId, ...] = ()
    """Nodes through which it is reached, at most 3."""
    reach: Reach = Reach.UNKNOWN
    other_hosts: tuple[str, ...] = ()
    """Where it is reached too, best first; at most 3, with 253 characters together."""
    device_class: DeviceClass | None = None
    """What kind of machine it is; None from nodes that do not say."""
    start_step_s: float = 0.0
    """Seconds of an inner step of its class's first size there; 0 if it is not measured."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host at which it says to be, best first."""
        return (self.host, *self.other_hosts)

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where it answers calls."""
        return Endpoint(self.host, self.grpc_port)

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where it takes heartbeats."""
        return Endpoint(self.host, self.heartbeat_port)

    def encode(self) -> bytes:
        """The body to sign."""
        reach = heartbeat_pb2.Reachability.Name(self.reach)
        kind = heartbeat_pb2.DeviceClass.Name(NUMBERS.get(self.device_class, 0))
        proto = heartbeat_pb2.Heartbeat(relays=self.relays, reach=reach, device_class=kind)
        proto.other_hosts.extend(self.other_hosts)
        for name in _HEARTBEAT_FIELDS:
            setattr(proto, name, getattr(self, name))
        return proto.SerializeToString(deterministic=True)


_HEARTBEAT_FIELDS = tuple(n for n in Heartbeat.__dataclass_fields__ if n not in _CONVERTED)


def set_hash(contributions: Iterable[bytes]) -> bytes:
    """Name of a set of contribution ids, whatever their order. 32 bytes."""
    return hashlib.sha256(b"neuroswarm v1 set\0" + b"".join(sorted(contributions))).digest()


def decode_contribution(body: bytes) -> Contribution:
    """Read a contribution header; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Contribution, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_hash("architecture", m.architecture)
    check_count("fragments", len(m.fragments), limits.MAX_FRAGMENTS)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    check_count("tokens", m.tokens, limits.MAX_COUNT)
    check_text("codec", m.codec, limits.MAX_NAME_CHARS)
    check_finite("loss", m.loss)
    parts: list[FragmentPayload] = []
    for p in m.fragments:
        check_hash("payload hash", p.payload_hash)
        check_count("payload bytes", p.payload_bytes, 4 * limits.MAX_FRAGMENT_PARAMS)
        if parts and p.fragment <= parts[-1].fragment:
            raise SchemaMismatch(f"fragments out of order: {p.fragment} in a contribution")
        parts.append(FragmentPayload(p.fragment, p.payload_hash, p.payload_bytes))
    return Contribution(
        m.swarm_id,
        m.round,
        m.base_digest,
        m.architecture,
        m.codec,
        m.inner_steps,
        m.tokens,
        m.loss,
        tuple(parts),
    )


def decode_skip(body: bytes) -> Skip:
    """Read a skip; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Skip, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    return Skip(m.swarm_id, m.round, m.base_digest, m.inner_steps)


def decode_ready(body: bytes) -> Ready:
    """Read a ready; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Ready, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    check_count("inner steps", m.inner_steps, limits.MAX_COUNT)
    return Ready(m.swarm_id, m.round, m.base_digest, m.inner_steps)


def decode_seal(body: bytes) -> Seal:
    """Read a seal; SchemaMismatch if it is out of bounds."""
    m = parse(rounds_pb2.Seal, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Seal(m.swarm_id, m.round, m.base_digest)


def decode_amendment(body: bytes) -> Amendment:
    """Read an amendment; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Amendment, body)
    check_hash("swarm id", m.swarm_id)
    check_count("bytes of rules", len(m.rules), limits.MAX_RULES_BYTES)
    return Amendment(m.swarm_id, m.rules)


def decode_ballot(body: bytes) -> Ballot:
    """Read a ballot; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Ballot, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Ballot(m.swarm_id, m.round, m.base_digest, _checked_ids(m.contributions))


def decode_confirm(body: bytes) -> Confirm:
    """Read a confirm; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(rounds_pb2.Confirm, body)
    _check_round(m.swarm_id, m.round, m.base_digest)
    return Confirm(m.swarm_id, m.round, m.base_digest, _checked_ids(m.contributions))


def decode_heartbeat(body: bytes) -> Heartbeat:
    """Read a heartbeat; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(heartbeat_pb2.Heartbeat, body)
    if m.swarm_id:
        check_hash("swarm id", m.swarm_id)
    if m.digest:
        check_hash("digest", m.digest)
    for name in ("instance", "twin"):
        if len(getattr(m, name)) not in (0, limits.INSTANCE_BYTES):
            raise SchemaMismatch(f"{name}: {len(getattr(m, name))} bytes")
    check_text("host", m.host, limits.MAX_HOST_CHARS)
    check_count("other hosts", len(m.other_hosts), limits.MAX_HOSTS - 1)
    check_count("their characters", sum(map(len, m.other_hosts)), limits.MAX_HOST_CHARS)
    for host in (m.host, *m.other_hosts):
        if not is_host(host):
            raise SchemaMismatch(f"not a host: {host!r}")
    for name in ("grpc_port", "heartbeat_port", "http_port", "dht_port"):
        check_count(name, getattr(m, name), 65535)
    for name in ("sequence", "round", "inner_steps", "available_memory_mb"):
        check_count(name, getattr(m, name), limits.MAX_COUNT)
    check_count("hosted fragments", m.first_fragment + m.num_fragments, limits.MAX_FRAGMENTS)
    check_instant("time", m.time)
    for name in ("network_saturation", "tokens_per_s", "start_step_s"):
        check_finite(name, getattr(m, name))
    check_count("relays", len(m.relays), limits.MAX_RELAYS)
    if any(len(relay) != NODE_ID_BYTES for relay in m.relays):
        raise SchemaMismatch(f"relays: an id of other than {NODE_ID_BYTES} bytes")
    return Heartbeat(
        **{name: getattr(m, name) for name in _HEARTBEAT_FIELDS},
        relays=tuple(map(NodeId, m.relays)),
        reach=Reach(m.reach) if m.reach in _REACHES else Reach.UNKNOWN,  # of a later version
        other_hosts=tuple(m.other_hosts),
        device_class=OF_NUMBER.get(m.device_class),
    )


def parse(message: type[M], data: bytes) -> M:
    """Parse authenticated, bounded bytes; SchemaMismatch if they are not of that message."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise SchemaMismatch(f"not a {message.DESCRIPTOR.name}: {len(data)} bytes") from error


def _encode_progress(proto: rounds_pb2.Skip | rounds_pb2.Ready, value: Skip | Ready) -> bytes:
    proto.swarm_id, proto.round, proto.base_digest, proto.inner_steps = (
        value.swarm_id,
        value.round,
        value.base_digest,
        value.inner_steps,
    )
    return proto.SerializeToString(deterministic=True)


def _encode_list(proto: rounds_pb2.Ballot | rounds_pb2.Confirm, value: Ballot | Confirm) -> bytes:
    proto.swarm_id, proto.round, proto.base_digest = value.swarm_id, value.round, value.base_digest
    proto.contributions.extend(value.contributions)
    return proto.SerializeToString(deterministic=True)


def _checked_ids(ids: Iterable[bytes]) -> tuple[bytes, ...]:
    found = tuple(ids)
    check_count("contributions", len(found), limits.MAX_SET)
    for before, after in zip((b"", *found), found, strict=False):
        check_hash("contribution id", after)
        if after <= before:
            raise SchemaMismatch("contribution ids are not strictly ascending")
    return found


def _check_round(swarm_id: bytes, round_: int, base_digest: bytes) -> None:
    check_hash("swarm id", swarm_id)
    check_hash("base digest", base_digest)
    check_count("round", round_, limits.MAX_COUNT)
