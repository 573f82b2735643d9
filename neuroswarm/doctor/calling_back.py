"""Asks nodes to call this machine back, which is what a node here would need of them.

For that it is a member for some seconds, under a key of its own, of no swarm's rounds: it listens
where a node would, greets each node, asks it, and says goodbye. Refuses to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.doctor.way import WayFacts
from neuroswarm.errors import ConfigError, PeerError
from neuroswarm.heartbeat.datagram import decode_datagram, encode_datagram
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.received import read_record
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.reach.dialling import DIAL, DialBack
from neuroswarm.v1 import reach_pb2
from neuroswarm.values import PROTOCOL_VERSION, Endpoint, NodeId, PeerAddress
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.reaching import decode_dial_reply

GREET_TRIES = 4
GREET_S = 1.0
"""Seconds between two greetings of nodes that did not answer yet."""

ANSWER_S = 12.0
"""Longest wait for a node's word: it tries two addresses for 4 s each."""

MAX_ASKED = 3
_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class CallBack:
    """What one node found when it called back."""

    label: str
    reached_host: str = ""
    """Where it reached this machine; empty if it did not."""
    reason: str = ""
    """Why it did not, or was not asked."""
    is_asked: bool = True
    """Whether it tried."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node here would listen, and what it would tell of that."""

    host: str
    grpc_port: int
    heartbeat_port: int
    announce: str | None = None


async def ask_to_call_back(
    ways: Sequence[WayFacts], place: Place, token: SwarmToken, clock: Clock
) -> tuple[CallBack, ...]:
    """Ask up to three of the nodes that answered datagrams.

    Returns:
        What each found; nothing if there is no node to ask, or the ports cannot be listened on.

    Cancellation: the nodes forget this machine by its silence.
    """
    asked = [way for way in ways if way.echoed is not None and way.reply is not None][:MAX_ASKED]
    if not asked:
        return ()
    told = place.announce or asked[0].own_address or place.host
    try:
        async with _guest(place, told, token, clock) as guest:
            await guest.greet([_door(way) for way in asked])
            return tuple([await guest.ask(way) for way in asked])
    except ConfigError:
        return ()  # the line on ports says why


def _door(way: WayFacts) -> Endpoint:
    return Endpoint(way.target.address, way.greeted_port)


class _Guest:
    """A member for some seconds."""

    def __init__(
        self, rpc: GrpcTransport, datagrams: UdpTransport, record: OwnRecord, clock: Clock
    ) -> None:
        self._rpc = rpc
        self._datagrams = datagrams
        self._record = record
        self._clock = clock
        self._doors: frozenset[Endpoint] = frozenset()
        self._met: dict[Endpoint, NodeId] = {}
        self._news = asyncio.Event()
        datagrams.on_datagram(self._take)

    async def greet(self, doors: Sequence[Endpoint]) -> None:
        """Tell nodes of this machine until each has answered, or four times."""
        self._doors = frozenset(doors)
        for _ in range(GREET_TRIES):
            waiting = [door for door in doors if door not in self._met]
            if not waiting:
                return
            self._tell(waiting)
            self._news.clear()
            try:
                async with asyncio.timeout(GREET_S):
                    while not all(door in self._met for door in doors):
                        await self._news.wait()
                        self._news.clear()
            except TimeoutError:
                continue  # lost, perhaps: greet again

    async def ask(self, way: WayFacts) -> CallBack:
        """Have one node call back."""
        label, node_id = way.target.label, self._met.get(_door(way))
        if node_id is None or way.reply is None:
            return CallBack(label, reason="it did not greet back", is_asked=False)
        address = PeerAddress(node_id, Endpoint(way.target.address, way.reply.grpc_port))
        request = reach_pb2.DialRequest().SerializeToString()
        try:
            answer = await self._rpc.call(address, DIAL, request, timeout_s=ANSWER_S)
            reply = decode_dial_reply(answer)
        except PeerError as error:
            return CallBack(label, reason=str(error), is_asked=False)
        return CallBack(label, reply.reached_host, reply.reason)

    def leave(self) -> None:
        """Say goodbye to all who answered."""
        self._record.leave()
        self._tell(list(self._met))

    def _tell(self, doors: Sequence[Endpoint]) -> None:
        own = encode_datagram(self._record.make(self._clock.wall()), ())
        for door in doors:
            self._datagrams.send(door, own)

    def _take(self, data: bytes, source: Endpoint) -> None:
        if source not in self._doors:
            return
        signed, _ = read_record(decode_datagram(data).own)
        self._met[source] = signed.signer
        self._news.set()


@asynccontextmanager
async def _guest(place: Place, told: str, token: SwarmToken, clock: Clock) -> AsyncIterator[_Guest]:
    """Listen where a node would.

    Raises:
        ConfigError: a port is taken, or the host is none of this machine's.
    """
    key = NodeKey.generate()
    datagrams = UdpTransport(Sealer(token.datagram_key), Endpoint(place.host, place.heartbeat_port))
    rpc = GrpcTransport(issue(token, key), Endpoint(place.host, place.grpc_port))
    DialBack(rpc, PeerTable(key.node_id, _INTERVAL_S), clock=clock)

    def describe() -> Heartbeat:
        ports = rpc.endpoint.port, datagrams.endpoint.port
        return Heartbeat(b"", 0, 0.0, told, *ports, 0, PROTOCOL_VERSION, is_training=False)

    guest = _Guest(rpc, datagrams, OwnRecord(key, describe), clock)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(datagrams)
        await stack.enter_async_context(rpc)
        stack.callback(guest.leave)
        yield guest
