"""What a hostile member knows of a swarm, and the statements that it makes of it, mostly broken.

Knows nothing of what carries them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fuzz_mutation import Mutator
from google.protobuf.message import DecodeError, Message

from neuroswarm.codecs.registry import codec_of
from neuroswarm.diloco.rules import Rules
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.v1 import dht_pb2, envelope_pb2, heartbeat_pb2, rounds_pb2, state_pb2
from neuroswarm.wire.signed import Kind, sign

SAFE_PORTS = (0, 1, 9, 65535)
"""Ports that fuzzed heartbeats may announce: nobody listens there."""

_BODIES: Mapping[Kind, type[Message]] = {
    Kind.HEARTBEAT: heartbeat_pb2.Heartbeat,
    Kind.CONTRIBUTION: rounds_pb2.Contribution,
    Kind.SKIP: rounds_pb2.Skip,
    Kind.READY: rounds_pb2.Ready,
    Kind.BALLOT: rounds_pb2.Ballot,
    Kind.CONFIRM: rounds_pb2.Confirm,
    Kind.SEAL: rounds_pb2.Seal,
    Kind.AMENDMENT: rounds_pb2.Amendment,
    Kind.DHT_REQUEST: dht_pb2.DhtRequest,
    Kind.DHT_ANSWER: dht_pb2.DhtAnswer,
    Kind.DHT_CONTACT: dht_pb2.DhtContact,
    Kind.DHT_RECORD: dht_pb2.DhtRecord,
}
ROUND_KINDS = tuple(
    kind for kind in Kind if kind is not Kind.HEARTBEAT and not kind.name.startswith("DHT_")
)
DHT_KINDS = (Kind.DHT_REQUEST, Kind.DHT_ANSWER)


@lru_cache(maxsize=256)
def make_key(*parts: object) -> NodeKey:
    """The key that these parts name."""
    seed = hashlib.sha256(repr(parts).encode()).digest()
    return NodeKey(Ed25519PrivateKey.from_private_bytes(seed))


@dataclass
class Scene:
    """The swarm as its members see it; `follow` keeps it at the round in progress."""

    swarm_id: bytes
    rules: bytes
    architecture: bytes
    sizes: tuple[int, ...]
    """Coded bytes of each fragment."""
    victim: envelope_pb2.Signed
    """The honest peer's own heartbeat."""
    owner: NodeKey
    round: int = 0
    digest: bytes = bytes(32)
    heard: list[envelope_pb2.Signed] = field(default_factory=list)
    """Real statements about finished rounds."""

    @classmethod
    def read(
        cls, manifest: state_pb2.StateManifest, victim: envelope_pb2.Signed, owner: NodeKey
    ) -> Scene:
        """The scene that a node's manifest and a peer's heartbeat show."""
        codec = codec_of(Rules.from_bytes(manifest.rules))
        swarm_id = heartbeat_pb2.Heartbeat.FromString(victim.body).swarm_id
        sizes = tuple(codec.packed_size(f.num_params) for f in manifest.fragments)
        return cls(swarm_id, manifest.rules, manifest.architecture, sizes, victim, owner)

    def follow(self, status: Mapping[str, Any]) -> None:
        """Take over where the node is now."""
        self.round, self.digest = status["round"], bytes.fromhex(status["digest"])


class Liar:
    """Makes statements about a scene."""

    def __init__(self, scene: Scene, mutator: Mutator) -> None:
        self.scene = scene
        self.mutator = mutator
        self.rng: random.Random = mutator.rng
        self._sequence = 0

    def signed(self, kind: Kind, key: NodeKey) -> envelope_pb2.Signed:
        """A statement, broken in its body, its envelope, its signature, or only out of place."""
        choice = self.rng.randrange(100)
        if choice < 40:
            return self._sign(kind, self.mutator.message(self.body(kind)).SerializeToString(), key)
        if choice < 60:
            data = self.mutator.encoding(self.body(kind).SerializeToString())
            return self._sign(kind, data, key)
        body = self.body(kind).SerializeToString()
        if choice < 75:
            return self.mutator.message(self._sign(kind, body, key))
        if choice < 85:
            return self.spoofed(kind, body, key)
        if choice < 95 and self.scene.heard:
            return self.mutator.message(self.rng.choice(self.scene.heard))
        return self._sign(kind, body, key)

    def spoofed(self, kind: Kind, body: bytes, key: NodeKey) -> envelope_pb2.Signed:
        """A statement in the victim's name, with the signature of another key."""
        made = self._sign(kind, body, key)
        made.public_key = self.scene.victim.public_key
        return made

    def body(self, kind: Kind) -> Message:
        """A well-formed body about a round near the one in progress."""
        return _MAKERS[kind](self)

    def payload(self) -> bytes:
        """Coded bytes of the right size that mostly decode to nothing good."""
        size = sum(self.scene.sizes)
        return self.rng.choice((bytes, self.rng.randbytes, lambda n: b"\xff" * n))(size)

    def header(self, payload: bytes) -> rounds_pb2.Contribution:
        """A header that promises exactly this payload."""
        m = rounds_pb2.Contribution(
            architecture=self.scene.architecture, codec="int4", inner_steps=16, tokens=2048, loss=2
        )
        self._about(m)
        start = 0
        for index, size in enumerate(self.scene.sizes):
            piece = payload[start : start + size]
            digest = hashlib.sha256(piece).digest()
            m.fragments.add(fragment=index, payload_hash=digest, payload_bytes=size)
            start += size
        return m

    def ids(self) -> list[bytes]:
        """Contribution ids, ascending; nobody has such contributions."""
        return sorted(self.rng.randbytes(32) for _ in range(self.rng.choice((0, 1, 2, 8))))

    def _about(self, m: Any) -> None:
        away = self.rng.choice((0, 0, 0, 0, 1, 2, 3, -1, -2, -9, 1000))
        m.swarm_id = self.scene.swarm_id
        m.round = max(0, self.scene.round + away)
        m.base_digest = self.scene.digest if away == 0 else self.rng.randbytes(32)

    def _sign(self, kind: Kind, body: bytes, key: NodeKey) -> envelope_pb2.Signed:
        if kind is Kind.HEARTBEAT:
            body = _harmless(body)
        return sign(kind, body[: kind.max_body_bytes], key).to_proto()

    def _progress(self, m: Any) -> Message:
        self._about(m)
        m.inner_steps = self.rng.choice((0, 1, 16, 10**6))
        return m  # type: ignore[no-any-return]

    def _list(self, m: Any) -> Message:
        self._about(m)
        m.contributions.extend(self.ids())
        return m  # type: ignore[no-any-return]

    def _seal(self) -> Message:
        m = rounds_pb2.Seal()
        self._about(m)
        return m

    def _amendment(self) -> Message:
        rules = self.rng.choice((self.mutator.cut, self.mutator.flipped, self.mutator.octets))(
            self.scene.rules
        )
        return rounds_pb2.Amendment(swarm_id=self.scene.swarm_id, rules=rules)

    def _dht_request(self) -> Message:
        m = dht_pb2.DhtRequest(nonce=self.rng.randbytes(16))
        which = self.rng.choice(("ping", "find", "fetch", "store"))
        if which == "ping":
            m.ping.SetInParent()
        elif which == "find":
            m.find.key = self.rng.randbytes(20)
        elif which == "fetch":
            tags = self.rng.randbytes(4 * self.rng.choice((0, 1, 160)))
            m.fetch.MergeFrom(dht_pb2.DhtFetch(key=self.rng.randbytes(20), known=tags))
        else:
            m.store.permit = self.rng.randbytes(8)
            m.store.record.CopyFrom(self.signed(Kind.DHT_RECORD, make_key("dht", 0)))
        if which != "store":
            m.contact.CopyFrom(self.signed(Kind.DHT_CONTACT, make_key("dht", 1)))
        return m

    def _dht_answer(self) -> Message:
        m = dht_pb2.DhtAnswer(
            nonce=self.rng.randbytes(16), time=1.7e9, permit=self.rng.randbytes(8)
        )
        for _ in range(self.rng.choice((0, 1, 3))):
            m.contacts.append(self.signed(Kind.DHT_CONTACT, make_key("dht", 1)))
            m.records.append(self.signed(Kind.DHT_RECORD, make_key("dht", 0)))
        return m

    def _dht_record(self) -> Message:
        m = dht_pb2.DhtRecord(
            swarm_id=self.scene.swarm_id,
            scope=self.rng.choice((1, 1, 3)),
            sequence=self.rng.choice((0, 1, 2**53)),
            expires_at=self.rng.choice((0.0, 1.7e9, 4e9)),
            hosts=["127.0.0.1"],
            grpc_port=9,
            heartbeat_port=9,
        )
        m.relays.add(node_id=self.rng.randbytes(20), host="127.0.0.1", grpc_port=9)
        return m

    def _heartbeat(self) -> Message:
        self._sequence += 1
        return heartbeat_pb2.Heartbeat(
            swarm_id=self.scene.swarm_id,
            sequence=self._sequence,
            time=1.0,
            host="127.0.0.1",
            grpc_port=9,
            heartbeat_port=9,
            http_port=9,
            protocol=1,
            num_fragments=len(self.scene.sizes),
            is_training=self.rng.randrange(20) == 0,
            round=self.scene.round,
            digest=self.scene.digest,
            tokens_per_s=1000,
            evaluated=self.scene.digest[:8],
            held_out_loss=self.rng.choice((0.0, 2.5, 1000.0)),
        )


_MAKERS: Mapping[Kind, Callable[[Liar], Message]] = {
    Kind.HEARTBEAT: Liar._heartbeat,
    Kind.CONTRIBUTION: lambda liar: liar.header(liar.payload()),
    Kind.SKIP: lambda liar: liar._progress(rounds_pb2.Skip()),
    Kind.READY: lambda liar: liar._progress(rounds_pb2.Ready()),
    Kind.BALLOT: lambda liar: liar._list(rounds_pb2.Ballot()),
    Kind.CONFIRM: lambda liar: liar._list(rounds_pb2.Confirm()),
    Kind.SEAL: Liar._seal,
    Kind.AMENDMENT: Liar._amendment,
    Kind.DHT_REQUEST: Liar._dht_request,
    Kind.DHT_ANSWER: Liar._dht_answer,
    Kind.DHT_CONTACT: lambda _liar: dht_pb2.DhtContact(address=b"\x7f\0\0\1", port=9, sequence=1),
    Kind.DHT_RECORD: Liar._dht_record,
}


def _harmless(body: bytes) -> bytes:
    """The same heartbeat, announcing no place where somebody else is."""
    try:
        m = heartbeat_pb2.Heartbeat.FromString(body)
    except DecodeError:
        return body
    is_elsewhere = not (m.host in ("127.0.0.1", "localhost") or m.host.endswith(".invalid"))
    ports = ("grpc_port", "heartbeat_port", "http_port")
    wrong = [p for p in ports if getattr(m, p) not in SAFE_PORTS and getattr(m, p) < 65536]
    if not wrong and not (is_elsewhere and _is_plausible(m.host)):
        return body
    for port in wrong:
        setattr(m, port, 9)
    if is_elsewhere and _is_plausible(m.host):
        m.host = "127.0.0.1"
    return m.SerializeToString()


def _is_plausible(host: str) -> bool:
    """Whether a node might take it for a host; texts of the mutator's own are meant to pass."""
    return bool(host) and host.isascii() and len(host) < 64 and not host.startswith("unix")
