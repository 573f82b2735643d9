"""Whole nodes on real sockets that are started one after the other, each with one hint.

Every swarm has loopback addresses and a token of its own, so that several run side by side. Names
are looked up in a table, as the name server of a Docker overlay answers: with the addresses of
those that are up.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from neuroswarm.cli.tracker import make_tracker
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import PeerUnreachable
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.workload import Workload
from neuroswarm.service import State
from neuroswarm.testing.lossy import lossy
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.values import Endpoint, NodeId, short
from neuroswarm.web.server import WebServer

NODES = 5
MAX_GAP_S = 3.0
LOSS = 0.2
TRACKER_DOWN_S = 6.0
"""How long the tracker is down where it is down at first."""

LOOK_S = 0.05
CLOCK = SystemClock()


class Given(enum.Enum):
    """The one hint that a node is given."""

    TRACKER = "tracker"
    PEER = "peer"
    NAME = "dns"


@dataclass(frozen=True)
class Plan:
    """Which node starts when, with what."""

    order: tuple[int, ...]
    """Nodes in the order in which they start."""
    gaps_s: tuple[float, ...]
    """Seconds before each start, the first 0."""
    given: tuple[Given, ...]
    """The hint of each node."""
    named: int
    """The node that those with a peer's address were told."""
    loss: float
    is_tracker_late: bool

    @classmethod
    def draw(cls, number: int) -> Plan:
        """The plan with that number: half of them lossy, a third with a late tracker.

        All three kinds of hints are given, so that the name leads everybody to everybody in the
        end, and the peer that is named to others was not given its own address.
        """
        chance = random.Random(number)
        order, named = list(range(NODES)), chance.randrange(NODES)
        chance.shuffle(order)
        while True:
            given = [chance.choice(list(Given)) for _ in range(NODES)]
            if set(given) == set(Given) and given[named] is not Given.PEER:
                break
        gaps_s = [0.0, *(chance.uniform(0.0, MAX_GAP_S) for _ in range(NODES - 1))]
        loss = LOSS if number % 2 else 0.0
        return cls(tuple(order), tuple(gaps_s), tuple(given), named, loss, number % 3 == 0)


@dataclass(frozen=True)
class Ports:
    """Ports that are free at all addresses of a swarm."""

    http: int
    grpc: int
    heartbeat: int
    tracker: int


def find_ports(hosts: list[str]) -> Ports:
    """Ports that can be bound at every one of these addresses now."""
    tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
    with ExitStack() as held:
        return Ports(*(_find_port(hosts, kind, held) for kind in (tcp, tcp, udp, tcp)))


def _find_port(hosts: list[str], kind: socket.SocketKind, held: ExitStack) -> int:
    while True:
        with ExitStack() as tried:
            port = 0
            try:
                for host in hosts:
                    probe = tried.enter_context(socket.socket(socket.AF_INET, kind))
                    probe.bind((host, port))
                    port = probe.getsockname()[1]
            except OSError:
                continue
            held.enter_context(tried.pop_all())
            return port


@dataclass
class StartedSwarm:
    """One swarm by its plan."""

    number: int
    plan: Plan
    folder: Path
    token: SwarmToken = field(default_factory=SwarmToken.new)
    nodes: dict[int, NodeCore] = field(default_factory=dict)
    tracker: WebServer | None = None

    def __post_init__(self) -> None:
        self.hosts = [f"127.55.{self.number + 1}.{i + 1}" for i in range(NODES)]
        self.ports = find_ports([*self.hosts, self.tracker_host])

    @property
    def tracker_host(self) -> str:
        return f"127.55.{self.number + 1}.100"

    async def look_up(self, host: str) -> tuple[str, ...]:
        """The name server: `tasks` has the address of every node that is up."""
        up = tuple(self.hosts[i] for i, node in self.nodes.items())
        if host != "tasks":
            return (host,)
        if not up:
            raise PeerUnreachable(f"unknown host {host}")
        return up

    async def launch_nodes(self, tasks: asyncio.TaskGroup) -> None:
        """Start all by the plan, in these tasks; returns once the last one is about to start."""
        for i, gap_s in zip(self.plan.order, self.plan.gaps_s, strict=True):
            await CLOCK.sleep(gap_s)
            self.nodes[i] = self._make(i)
            tasks.create_task(self.nodes[i].start())

    async def run_tracker(self) -> None:
        """Start the tracker, late if the plan says so."""
        await CLOCK.sleep(TRACKER_DOWN_S if self.plan.is_tracker_late else 0.0)
        listen = Endpoint(self.tracker_host, self.ports.tracker)
        self.tracker = make_tracker(listen, TokenRing(self.token), is_open=False)
        await self.tracker.start()

    async def until_connected(self, within_s: float) -> float:
        """Wait until all are one swarm; the seconds that this took.

        Only time in which this event loop had its turns counts: on a machine that is busy with
        something else all nodes are slow, which is no failure.

        Raises:
            TimeoutError: it took too long; says where everyone stands.
        """
        lived_s = 0.0
        while not self.is_connected():
            if lived_s > within_s:
                raise TimeoutError(
                    f"swarm {self.number} not within {within_s} s: {self.describe()}"
                )
            await CLOCK.sleep(LOOK_S)
            lived_s += LOOK_S
        return lived_s

    def describe(self) -> str:
        """The plan, and whom each node knows and what it holds."""
        lines = [str(self.plan)]
        for i, node in self.nodes.items():
            parts = node.parts
            has_state = parts is not None and parts.replica.has_state
            digest = short(parts.replica.state.digest) if parts and has_state else "none"
            known = len(known_to(node)) if parts else 0
            lines.append(f"{i} {node.state.name} by {self.plan.given[i]}: {known} known, {digest}")
        return "\n".join(lines)

    def is_connected(self) -> bool:
        """Whether everybody knows everybody, and all hold the same outer state."""
        nodes = self.nodes.values()
        if len(nodes) < NODES or any(node.state is not State.RUNNING for node in nodes):
            return False
        parts = [node.require_parts() for node in nodes]
        everyone = {part.home.key.node_id for part in parts}
        digests = {part.replica.state.digest for part in parts}
        return len(digests) == 1 and all(everyone == known_to(node) for node in nodes)

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))
        if self.tracker is not None:
            await self.tracker.stop()

    def _hint(self, i: int) -> dict[str, object]:
        match self.plan.given[i]:
            case Given.TRACKER:
                return {"trackers": f"http://{self.tracker_host}:{self.ports.tracker}"}
            case Given.PEER:
                return {"peers": str(Endpoint(self.hosts[self.plan.named], self.ports.heartbeat))}
            case Given.NAME:
                return {"peers": f"dns://tasks:{self.ports.heartbeat}"}

    def _make(self, i: int) -> NodeCore:
        config = SwarmNodeConfig(
            network={
                "host": self.hosts[i],
                "port": self.ports.http,
                "grpc_port": self.ports.grpc,
                **self._hint(i),
            },
            heartbeat={"port": self.ports.heartbeat},
            resources={"device": "cpu", "max_cpu_threads": 1, "available_memory_mb": 1024},
            training={"context": 16, "batch_size": 4, "eval_batches": 1},
            state_dir=self.folder / f"{self.number}-{i}",
        )
        workload = Workload(TinyModel(i), tiny_text())  # each would found a swarm of its own
        carriers = lossy(self.plan.loss, 100 * self.number + i)
        around = Surroundings(make_carriers=carriers, lookup=self.look_up)
        return NodeCore(config, self.token, workload, around)


def known_to(node: NodeCore) -> set[NodeId]:
    """The live nodes of its swarm that a node knows, and itself."""
    parts = node.require_parts()
    return {parts.home.key.node_id, *(peer.node_id for peer in parts.rounds.crowd.live())}
