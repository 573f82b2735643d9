"""Nodes ask peers to call them back, over calls in memory and over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest

from neuroswarm.clock import SystemClock
from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.verdicts import DOUBTFUL_S, FRESH_S
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.reach.dialling import DIAL, DIALS_BURST, HELLO, DialBack
from neuroswarm.reach.service import ReachService
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.values import Endpoint, NodeId, PeerAddress, Reach
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.reaching import DialReply, decode_dial_reply
from neuroswarm.wire.signed import Kind, Signed, sign

SWARM = b"s" * 32


def record_of(key: NodeKey, at: Endpoint, sequence: int = 1) -> tuple[Signed, Heartbeat]:
    record = Heartbeat(SWARM, sequence, 0.0, at.host, at.port, 9999, 7101, 1, is_training=True)
    return sign(Kind.HEARTBEAT, record.encode(), key), record


@dataclass
class Node:
    key: NodeKey
    rpc: MemoryRpc
    peers: PeerTable
    service: ReachService
    changes: list[Reach]

    @property
    def id(self) -> NodeId:
        return self.key.node_id


@dataclass
class Swarm:
    """Nodes that know one another, on one network in memory."""

    stack: AsyncExitStack
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    clock: FakeClock = field(default_factory=FakeClock)
    nodes: list[Node] = field(default_factory=list)
    lies: dict[NodeId, Endpoint] = field(default_factory=dict)
    """Where nodes wrongly say to be."""

    async def add(self, num: int) -> list[Node]:
        self.make(num)
        await self.start()
        return self.nodes

    def make(self, num: int) -> list[Node]:
        for _ in range(num):
            key = NodeKey.generate()
            rpc = self.network.rpc(key.node_id, Endpoint(f"10.0.0.{len(self.nodes)}", 8101))
            peers = PeerTable(key.node_id, 1e6)
            changes: list[Reach] = []
            service = ReachService(
                rpc,
                peers,
                announced=lambda key=key, rpc=rpc: [self.told(key, rpc).host],
                clock=self.clock,
                on_change=lambda c=changes: c.append(Reach.OPEN),
            )
            self.nodes.append(Node(key, rpc, peers, service, changes))
        self.introduce()
        return self.nodes

    async def start(self) -> None:
        for node in self.nodes:
            await self.stack.enter_async_context(node.rpc)
        for node in self.nodes:
            await self.stack.enter_async_context(node.service)

    def introduce(self) -> None:
        for node in self.nodes:
            for other in self.nodes:
                signed, record = record_of(other.key, self.told(other.key, other.rpc))
                host = other.rpc.endpoint.host
                node.peers.observe(signed, record, self.clock.monotonic(), host_seen=host)
                node.peers.note_hole(other.id, Endpoint(host, 9999))

    def told(self, key: NodeKey, rpc: MemoryRpc) -> Endpoint:
        """Where a node says that it is."""
        return self.lies.get(key.node_id, rpc.endpoint)

    def close_off(self, node: Node, *others: Node) -> None:
        """Let no call to the node through from these."""
        for other in others:
            self.network.drop(other.id, node.id, HELLO)
            self.network.drop(other.id, node.id, DIAL)


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    async with AsyncExitStack() as stack:
        yield Swarm(stack)


async def test_nodes_learn_that_they_are_reached(swarm):
    a, b, c = await swarm.add(3)
    await swarm.clock.advance(3.0)
    for node in (a, b, c):
        assert node.service.reach is Reach.OPEN
        assert node.service.get_status()["reachable"] is True
        assert node.service.get_status()["reached_by"] == 2
    assert a.peers.get(b.id).is_dialled is True
    assert a.changes


async def test_a_node_that_nobody_reaches_learns_why(swarm, caplog):
    a, b, c = swarm.make(3)
    swarm.close_off(a, b, c)
    await swarm.start()
    await swarm.clock.advance(FRESH_S + 2 * DOUBTFUL_S)
    assert a.service.reach is Reach.CLOSED
    status = a.service.get_status()
    assert status["reachable"] is False
    assert len(status["missed_by"]) == 2
    assert "lost" in status["missed_reason"]
    assert b.peers.get(a.id).is_dialled is False
    assert b.service.reach is Reach.OPEN, "by the two that do reach it"
    assert "a router or firewall is in the way" in caplog.text


async def test_a_node_that_is_reached_again_says_so(swarm):
    a, b = swarm.make(2)
    fault = swarm.network.drop(b.id, a.id, HELLO)
    await swarm.start()
    await swarm.clock.advance(3.0)
    assert a.service.reach is Reach.CLOSED
    swarm.network.remove(fault)
    await swarm.clock.advance(DOUBTFUL_S + 2.0)
    assert a.service.reach is Reach.OPEN
    assert len(a.changes) == 2


async def test_nobody_to_be_reached_is_said_once_a_minute(swarm, caplog):
    a, b = swarm.make(2)
    swarm.network.drop(None, a.id)
    swarm.network.drop(None, b.id)
    await swarm.start()
    await swarm.clock.advance(300.0)
    said = [r.message for r in caplog.records if "need one public node" in r.message]
    assert a.service.reach is Reach.UNKNOWN
    assert 6 <= len(said) <= 10  # both of them, in 5 minutes, after the first
    assert "no reachable peer; need one public node: 1 known" in said[0]


async def test_a_stranger_is_not_called_back(swarm):
    (a,) = await swarm.add(1)
    stranger = await swarm.stack.enter_async_context(swarm.network.rpc(NodeId(b"s" * 20)))
    with pytest.raises(ProtocolViolation, match="no heartbeat of you"):
        await stranger.call(a.rpc.address, DIAL, b"", timeout_s=5)
    assert a.service.dial_back.num_dialled == 0


async def test_calls_back_are_limited_for_each_asker(swarm):
    a, b = await swarm.add(2)
    await swarm.clock.advance(FRESH_S / 2)  # what the service asked for is forgotten
    for _ in range(int(DIALS_BURST)):
        await b.rpc.call(a.rpc.address, DIAL, b"", timeout_s=5)
    with pytest.raises(ProtocolViolation, match="too many calls back"):
        await b.rpc.call(a.rpc.address, DIAL, b"", timeout_s=5)
    assert a.service.dial_back.num_dialled == 1 + DIALS_BURST


async def test_the_host_that_datagrams_come_from_is_tried_too(swarm):
    a, b = await swarm.add(2)
    signed, record = record_of(b.key, Endpoint("192.168.9.9", 8101), sequence=2)
    a.peers.observe(signed, record, swarm.clock.monotonic(), host_seen="10.0.0.1")
    a.peers.note_hole(b.id, Endpoint("10.0.0.1", 41000))
    answer = decode_dial_reply(await b.rpc.call(a.rpc.address, DIAL, b"", timeout_s=5))
    assert answer.reached_host == "10.0.0.1"
    assert a.peers.get(b.id).host == "10.0.0.1"


async def test_a_wrong_announcement_is_named_and_does_not_keep_peers_away(swarm, caplog):
    a, b, c = swarm.make(3)
    swarm.lies[b.id] = Endpoint("192.168.9.9", 8101)
    for node in (a, c):
        signed, record = record_of(b.key, swarm.lies[b.id], sequence=2)
        node.peers.observe(signed, record, 0.0, host_seen=b.rpc.endpoint.host)
    await swarm.start()
    await swarm.clock.advance(3.0)
    assert b.service.reach is Reach.OPEN
    for node in (a, c):
        assert node.peers.get(b.id).address == b.rpc.address
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    (warning,) = warnings
    assert "at 10.0.0.1, and not where it says to be (192.168.9.9): correct --announce" in warning


def test_replies_are_checked():
    assert decode_dial_reply(DialReply("", "x" * 999).encode()) == DialReply("", "x" * 300)
    with pytest.raises(SchemaMismatch, match="not a host"):
        decode_dial_reply(DialReply("unix:/tmp/x").encode())
    with pytest.raises(SchemaMismatch, match="not a DialReply"):
        decode_dial_reply(b"\xff")


async def test_calls_back_over_grpc_are_connections_of_their_own():
    token, clock = SwarmToken.new(), SystemClock()
    async with AsyncExitStack() as stack:
        nodes = []
        for _ in range(2):
            key = NodeKey.generate()
            rpc = GrpcTransport(issue(token, key), Endpoint("127.0.0.1", 0))
            peers = PeerTable(key.node_id, 1e6)
            nodes.append((key, rpc, peers, DialBack(rpc, peers, clock=clock)))
            await stack.enter_async_context(rpc)
        (key, rpc, _, _), (_, other, peers, dial_back) = nodes
        signed, record = record_of(key, rpc.endpoint)
        peers.observe(signed, record, clock.monotonic(), host_seen="127.0.0.1")
        answer = await rpc.call(other.address, DIAL, b"", timeout_s=20)
        assert decode_dial_reply(answer).reached_host == "127.0.0.1"
        # A connection that is open already would not show that its port is closed.
        closed = replace(record, sequence=2, grpc_port=1)
        peers.observe(
            sign(Kind.HEARTBEAT, closed.encode(), key), closed, 0.0, host_seen="127.0.0.1"
        )
        answer = decode_dial_reply(await rpc.call(other.address, DIAL, b"", timeout_s=20))
        assert answer.reached_host == ""
        assert "unreachable" in answer.reason
        address = PeerAddress(key.node_id, Endpoint("127.0.0.1", 1))
        assert "unreachable" in await dial_back.reaches(address)
        assert peers.get(key.node_id).is_dialled is False
