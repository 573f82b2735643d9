"""The body of heartbeats, and its checked conversion from and to bytes.

Knows nothing of who is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuroswarm.errors import SchemaMismatch
from neuroswarm.hardware.device_class import DeviceClass
from neuroswarm.v1 import heartbeat_pb2
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_count, check_finite, check_hash, check_instant, check_text
from neuroswarm.wire.hosts import is_host
from neuroswarm.wire.messages import parse

_REACHES = frozenset(map(int, Reach))

_CLASSES = dict(enumerate(DeviceClass, start=1))
_CLASS_NUMBERS: Mapping[DeviceClass | None, int] = {c: number for number, c in _CLASSES.items()}

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
    digest: bytes = b""
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
    evaluated: bytes = b""
    """Name of the newest outer state that it evaluated, 8 bytes; or empty."""
    held_out_loss: float = 0.0
    """Of that state on its part of the held-out text, nats per token, 0 to 1000."""
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
        proto = heartbeat_pb2.Heartbeat(
            relays=self.relays,
            reach=reach,
            other_hosts=self.other_hosts,
            device_class=heartbeat_pb2.DeviceClass.Name(_CLASS_NUMBERS.get(self.device_class, 0)),
        )
        for name in _HEARTBEAT_FIELDS:
            setattr(proto, name, getattr(self, name))
        return proto.SerializeToString(deterministic=True)


_HEARTBEAT_FIELDS = tuple(n for n in Heartbeat.__dataclass_fields__ if n not in _CONVERTED)


def decode_heartbeat(body: bytes) -> Heartbeat:
    """Read a heartbeat; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(heartbeat_pb2.Heartbeat, body)
    if m.swarm_id:
        check_hash("swarm id", m.swarm_id)
    if m.digest:
        check_hash("digest", m.digest)
    for name in ("instance", "twin", "evaluated"):
        if len(getattr(m, name)) not in (0, limits.NAME_BYTES):
            raise SchemaMismatch(f"{name}: {len(getattr(m, name))} bytes")
    if not 0.0 <= m.held_out_loss <= limits.MAX_LOSS_NATS:
        raise SchemaMismatch(f"held-out loss: {m.held_out_loss:g} (0 to {limits.MAX_LOSS_NATS:g})")
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
        device_class=_CLASSES.get(m.device_class),
    )
