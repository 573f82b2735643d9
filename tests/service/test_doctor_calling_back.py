"""Nodes call the doctor's machine back, over gRPC and UDP on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from neuroswarm.clock import SystemClock
from neuroswarm.config import HeartbeatConfig
from neuroswarm.doctor.calling_back import CallBack, Place, ask_to_call_back
from neuroswarm.doctor.datagram_asker import Echoed
from neuroswarm.doctor.way import Target, WayFacts
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.reach.dialling import DialBack
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.probes import ProbeReply

HERE = "127.0.0.1"
TOKEN = SwarmToken.new()
CLOCK = SystemClock()


@dataclass
class Node:
    rpc: GrpcTransport
    datagrams: UdpTransport
    peers: PeerTable

    def way(self) -> WayFacts:
        """What the doctor would have found on the way to it."""
        udp, grpc = self.datagrams.endpoint.port, self.rpc.endpoint.port
        observed = Endpoint(HERE, 0)
        return WayFacts(
            Target("the node", Endpoint(HERE, 1), HERE),
            reply=ProbeReply(0.0, observed, grpc, udp),
            echoed=Echoed(0.001, observed),
            greeted_port=udp,
            own_address=HERE,
        )


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    key = NodeKey.generate()
    rpc = GrpcTransport(issue(TOKEN, key), Endpoint(HERE, 0))
    datagrams = UdpTransport(Sealer(TOKEN.datagram_key), Endpoint(HERE, 0))
    peers = PeerTable(key.node_id, 1.0)

    def describe() -> Heartbeat:
        ports = rpc.endpoint.port, datagrams.endpoint.port
        return Heartbeat(b"s" * 32, 0, 0.0, HERE, *ports, 7101, 1, is_training=True)

    heartbeat = HeartbeatService(
        HeartbeatConfig(interval_s=1.0), datagrams=datagrams,
        record=OwnRecord(key, describe), peers=peers, clock=CLOCK,
    )  # fmt: skip
    DialBack(rpc, peers, clock=CLOCK)
    async with AsyncExitStack() as stack:
        for part in (datagrams, rpc, heartbeat):
            await stack.enter_async_context(part)
        yield Node(rpc, datagrams, peers)


async def ask(way: WayFacts, announce: str | None = None) -> CallBack:
    (found,) = await ask_to_call_back([way], Place(HERE, 0, 0, announce), TOKEN, CLOCK)
    return found


async def test_a_machine_that_is_reached():
    async with node() as other:
        assert await ask(other.way()) == CallBack("the node", HERE)
        left = [p for p in other.peers.all(CLOCK.monotonic()) if not p.heartbeat.is_leaving]
        assert not left, "it said goodbye, and was never one of the swarm"
        assert other.peers.alive(CLOCK.monotonic(), b"s" * 32) == []


async def test_a_machine_that_says_to_be_elsewhere():
    async with node() as other:
        found = await ask(other.way(), announce="127.0.0.2")
    assert (found.reached_host, found.is_asked) == ("", True)
    assert "unreachable" in found.reason


async def test_nobody_to_ask_and_nobody_who_answers():
    place = Place(HERE, 0, 0)
    assert await ask_to_call_back([], place, TOKEN, CLOCK) == ()
    async with node() as other:
        way = other.way()
    found = await ask(way)
    assert (found.is_asked, found.reason) == (False, "it did not greet back")


async def test_ports_that_are_taken():
    async with node() as other:
        place = Place(HERE, other.rpc.endpoint.port, 0)
        assert await ask_to_call_back([other.way()], place, TOKEN, CLOCK) == ()
