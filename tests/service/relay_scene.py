"""Nodes in one process over real sockets, some of them closed to the others: with relays."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.sections import RelayConfig
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.node.carriers import NetworkCarriers
from neuroswarm.node.relaying import Relaying, assemble_relaying
from neuroswarm.reach.service import ReachService
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, Signed, sign

SWARM = b"s" * 32
CLOSED_PORT = 1
"""Announced by nodes that are closed to others: nobody listens there."""

CONFIG = SwarmNodeConfig(network={"host": "127.0.0.1", "port": 0}, heartbeat={"port": 0})


@dataclass(eq=False)
class Node:
    """One node, without rounds and heartbeats."""

    key: NodeKey
    carriers: NetworkCarriers
    peers: PeerTable
    reach: ReachService
    relaying: Relaying
    is_closed: bool
    sequence: int = 0
    asked: list[NodeId] = field(default_factory=list)

    @property
    def id(self) -> NodeId:
        return self.key.node_id

    @property
    def relays(self) -> tuple[NodeId, ...]:
        return self.relaying.lines.relays

    def record(self) -> tuple[Signed, Heartbeat]:
        """What its next heartbeat would say."""
        self.sequence += 1
        port = CLOSED_PORT if self.is_closed else self.carriers.grpc_endpoint.port
        record = Heartbeat(
            SWARM, self.sequence, 0.0, "127.0.0.1", port, 9, 7101, 1, is_training=True,
            relays=self.relays, reach=self.reach.reach,
        )  # fmt: skip
        return sign(Kind.HEARTBEAT, record.encode(), self.key), record

    async def call(
        self, other: Node, request: bytes = b"hello", method: str = "Test/Echo"
    ) -> bytes:
        """Call another node as all of its parts do."""
        peer = self.peers.get(other.id)
        assert peer is not None, "they know one another"
        return await self.carriers.rpc.call(peer.address, method, request, timeout_s=30)

    def address_of(self, other: Node) -> PeerAddress:
        peer = self.peers.get(other.id)
        assert peer is not None, "they know one another"
        return peer.address

    async def echo(self, caller: NodeId, request: bytes) -> bytes:
        self.asked.append(caller)
        return request


@dataclass
class Scene:
    """Nodes that hear of one another whenever something changes."""

    stack: AsyncExitStack
    clock: Clock = field(default_factory=SystemClock)
    token: SwarmToken = field(default_factory=SwarmToken.new)
    nodes: list[Node] = field(default_factory=list)

    async def add(self, *, is_closed: bool = False, relay: RelayConfig | None = None) -> Node:
        key = NodeKey.generate()
        carriers = NetworkCarriers(key, TokenRing(self.token), CONFIG)
        peers = PeerTable(key.node_id, 1e6)
        reach = ReachService(
            carriers.rpc,
            peers,
            announced=lambda: [carriers.grpc_endpoint.host],
            clock=self.clock,
            on_change=self.tell,
        )
        relaying = assemble_relaying(
            relay or RelayConfig(), carriers, reach, peers, clock=self.clock
        )
        relaying.lines.on_change = self.tell
        node = Node(key, carriers, peers, reach, relaying, is_closed)
        carriers.rpc.serve_unary("Test/Echo", node.echo)
        await self.stack.enter_async_context(carriers)
        self.nodes.append(node)
        self.tell()
        await self.stack.enter_async_context(reach)
        await self.stack.enter_async_context(relaying.lines)
        return node

    async def add_bare(self) -> GrpcTransport:
        """A member that does only what a test has it do."""
        credentials = issue(self.token, NodeKey.generate())
        rpc = GrpcTransport(credentials, Endpoint("127.0.0.1", 0))
        return await self.stack.enter_async_context(rpc)

    async def stop(self, node: Node) -> None:
        """Take a node off the network; the others still believe that it is there."""
        self.nodes.remove(node)
        await node.relaying.lines.stop()
        await node.reach.stop()
        await node.carriers.stop()

    def tell(self) -> None:
        """Let everybody hear of everybody."""
        now = self.clock.monotonic()
        for node in self.nodes:
            signed, record = node.record()
            for other in self.nodes:
                other.peers.observe(signed, record, now, host_seen="127.0.0.1")
