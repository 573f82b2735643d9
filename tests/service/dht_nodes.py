"""Nodes of a DHT on real sockets in one process: lossy, killed without a word, lying."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config import DhtConfig
from neuroswarm.dht.service import DhtService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.datagram import DHT_CONTEXT, UdpTransport
from neuroswarm.transport import Datagrams
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.dht_messages import Answer, Verdict, decode_answer
from neuroswarm.wire.dht_records import DhtRecord, Scope, decode_dht_record
from neuroswarm.wire.signed import Kind, sign

LOOPBACK = "127.0.0.1"
SWARM = b"s" * 32
SEALER = Sealer(bytes(range(32)))


def key_named(*parts: object) -> NodeKey:
    """The key that follows from these parts."""
    seed = hashlib.sha256(repr(parts).encode()).digest()
    return NodeKey(Ed25519PrivateKey.from_private_bytes(seed))


def draft_of(index: int, scope: Scope = Scope.SWARM, fragment: int = 0) -> DhtRecord:
    """What the node with that number publishes, like nobody else's."""
    return DhtRecord(
        SWARM, scope, fragment, hosts=(LOOPBACK,), grpc_port=1000 + index,
        heartbeat_port=2000 + index, protocol=1,
    )  # fmt: skip


def says(record: DhtRecord) -> DhtRecord:
    """A record without what changes with every renewal."""
    return replace(record, sequence=0, expires_at=0.0, is_withdrawn=False)


Tamper = Callable[[Answer, random.Random], Answer]
"""What a liar answers instead of the truth."""


class Wire:
    """A node's datagrams, of which a seeded share is lost; a liar's answers are changed here."""

    def __init__(self, inner: Datagrams, key: NodeKey, *, loss: float, seed: int) -> None:
        self._inner = inner
        self._key = key
        self.loss = loss
        self._random = random.Random(f"{seed}/{key.node_id.hex()}")
        self.tamper: Tamper | None = None
        self.delay_s = 0.0
        """How long everything waits before it is sent."""
        self.fired: Counter[str] = Counter()
        """Faults that struck."""
        self.num_passed = 0
        self.largest = 0
        """Bytes of the largest datagram before sealing."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def send(self, to: Endpoint, data: bytes) -> None:
        self.largest = max(self.largest, len(data))
        if self._random.random() < self.loss:
            self.fired["lost"] += 1
            return
        if self.tamper is not None:
            data = self._tampered(data)
        self.num_passed += 1
        if self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, self._inner.send, to, data)
        else:
            self._inner.send(to, data)

    def _tampered(self, data: bytes) -> bytes:
        message = envelope_pb2.Signed.FromString(data)
        if message.kind != envelope_pb2.KIND_DHT_ANSWER:
            return data
        truth = decode_answer(message.body)
        assert self.tamper is not None
        lie = self.tamper(truth, self._random)
        if lie == truth:
            return data
        self.fired["lied"] += 1
        return sign(Kind.DHT_ANSWER, lie.encode(), self._key).to_proto().SerializeToString()


@dataclass(eq=False)
class DhtNode:
    """One node."""

    index: int
    key: NodeKey
    transport: UdpTransport
    wire: Wire
    service: DhtService
    peers: PeerTable
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def id(self) -> NodeId:
        return self.key.node_id

    @property
    def endpoint(self) -> Endpoint:
        return self.transport.endpoint

    async def start(self) -> None:
        await self.stack.enter_async_context(self.transport)
        await self.stack.enter_async_context(self.service)

    async def kill(self) -> None:
        """End it as a power cut does: nothing is withdrawn."""
        await self.stack.aclose()


def make_node(
    index: int, seeds: tuple[Endpoint, ...] = (), *, loss: float = 0.0, seed: int = 0,
    clock: Clock | None = None, **settings: object,
) -> DhtNode:  # fmt: skip
    """A node to be started; `settings` are those of the section `dht`."""
    key = key_named("dht node", seed, index)
    transport = UdpTransport(SEALER, Endpoint(LOOPBACK, 0), context=DHT_CONTEXT)
    wire = Wire(transport, key, loss=loss, seed=seed)
    peers = PeerTable(key.node_id, 5.0)
    config = DhtConfig(seeds=tuple(map(str, seeds)), **settings)  # type: ignore[arg-type]
    service = DhtService(
        config,
        datagrams=wire,  # type: ignore[arg-type]
        signer=key,
        peers=peers,
        locate=lambda: transport.endpoint,
        clock=clock or SystemClock(),
    )
    return DhtNode(index, key, transport, wire, service, peers)


# -- lies --------------------------------------------------------------------------------


def withholds(truth: Answer, _random: random.Random) -> Answer:
    """Knows nobody, keeps nothing, and says that it stored what it was given."""
    verdict = Verdict.STORED if truth.verdict is not Verdict.UNSPECIFIED else truth.verdict
    return replace(truth, contacts=(), records=(), num_records=0, num_left=0, verdict=verdict)


def forges(truth: Answer, rng: random.Random) -> Answer:
    """Changes what others have signed, and says that there is a lot more of it."""
    if truth.records:
        return replace(truth, records=tuple(_forged(r) for r in truth.records), num_left=1000)
    if truth.contacts and rng.random() < 0.5:
        return replace(truth, contacts=tuple(_moved(c) for c in truth.contacts))
    return replace(truth, num_records=2**31)


def garbles(truth: Answer, rng: random.Random) -> Answer:
    """Sends noise in the place of records and contacts, and the time of another century."""
    noise = envelope_pb2.Signed(
        kind=rng.choice((0, 1, 14, 15, 12)),
        body=rng.randbytes(60),
        public_key=rng.randbytes(32),
        signature=rng.randbytes(64),
    )
    return replace(
        truth, time=4e9 * rng.random(), records=(noise,), contacts=(noise,), num_records=5
    )


class Replayer:
    """Shows the first record of each signer that came its way, for ever."""

    def __init__(self) -> None:
        self._first: dict[bytes, envelope_pb2.Signed] = {}

    def __call__(self, truth: Answer, _random: random.Random) -> Answer:
        records = tuple(self._first.setdefault(r.public_key, r) for r in truth.records)
        return replace(truth, records=records)


class Clique:
    """Knows only the other liars, and says that its own records are another's."""

    def __init__(self, friends: list[DhtNode], key: NodeKey) -> None:
        self._friends = friends
        self._key = key

    def __call__(self, truth: Answer, _random: random.Random) -> Answer:
        if truth.records:
            return replace(truth, records=tuple(map(self._signed_by_me, truth.records)))
        friends = {friend.key.public_key for friend in self._friends}
        return replace(truth, contacts=tuple(c for c in truth.contacts if c.public_key in friends))

    def _signed_by_me(self, message: envelope_pb2.Signed) -> envelope_pb2.Signed:
        mine = sign(Kind.DHT_RECORD, message.body, self._key).to_proto()
        mine.public_key = message.public_key
        return mine


def _forged(message: envelope_pb2.Signed) -> envelope_pb2.Signed:
    record = decode_dht_record(message.body)
    lie = replace(record, sequence=record.sequence + 1000, hosts=("203.0.113.66",))
    forged = envelope_pb2.Signed()
    forged.CopyFrom(message)
    forged.body = lie.encode()
    return forged


def _moved(message: envelope_pb2.Signed) -> envelope_pb2.Signed:
    moved = envelope_pb2.Signed()
    moved.CopyFrom(message)
    moved.body = message.body[:-1] + bytes([message.body[-1] ^ 1])
    return moved
