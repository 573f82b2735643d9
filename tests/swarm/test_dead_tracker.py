"""A tracker that is killed for good: who knows somebody needs none."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from start_scene import CLOCK, LOOK_S, find_ports, known_to

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.workload import Workload
from neuroswarm.service import State
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import DEADLINE_S, SETTINGS
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.values import Endpoint

WITHIN_S = 3 * DEADLINE_S
ROUNDS = 3
STEP_S = 0.05
HEARTBEAT_S = 1.0
"""All nodes share one event loop: where a busy machine halts it for a second, each would lose all
others by three intervals of less."""


class Tracker:
    """A `neuroswarm tracker` process."""

    def __init__(self, token: SwarmToken) -> None:
        self._token = token
        self.url = ""

    async def start(self) -> None:
        flags = ["--host", "127.0.0.1", "--port", "0", "--token", self._token.text]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "neuroswarm", "tracker", *flags),
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if b"tracker listens on" in line:
                self.url = f"http://{line.decode().split()[-1]}"
                return
        pytest.fail("the tracker ended")

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


class Nodes:
    """Nodes on loopback that train together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = SwarmToken.new()
        self.running: list[NodeCore] = []

    async def start(self, name: str, **hints: str) -> NodeCore:
        """Start a node with these hints, and let it train."""
        ports = find_ports(["127.0.0.1"])
        config = SwarmNodeConfig(
            **{**SETTINGS, "heartbeat": {"interval_s": HEARTBEAT_S}},
            network={"host": "127.0.0.1", "port": ports.http, "grpc_port": ports.grpc, **hints},
            state_dir=self.folder / name,
        )
        config = config.model_copy(
            update={"heartbeat": config.heartbeat.model_copy(update={"port": ports.heartbeat})}
        )
        node = NodeCore(config, self.token, Workload(TinyModel(), tiny_text()), Surroundings())
        self.running.append(node)
        await node.start()
        key = node.require_parts().home.key
        Member(
            name, "127.0.0.1", self.folder / name, node, key, 0, True, None, STEP_S, CLOCK
        ).begin_training()
        return node

    async def stop(self, *nodes: NodeCore) -> None:
        self.running = [node for node in self.running if node not in nodes]
        await asyncio.gather(*(node.stop() for node in nodes))

    async def until_all_contribute(self) -> None:
        """Wait for an outer state in which everybody's contribution counts, held by all."""
        everyone = {node.require_parts().home.key.node_id for node in self.running}

        def is_everyones() -> bool:
            states = [node.require_parts().replica.state for node in self.running]
            return all(everyone <= set(state.applied) for state in states)

        await self.until(is_everyones, "contributions of all")

    async def more_rounds(self, count: int) -> None:
        """Wait until everybody has advanced so far."""
        states = [node.require_parts().replica.state for node in self.running]
        wanted = max(state.round for state in states) + count

        def are_there() -> bool:
            assert not self.describe_lost(), "nobody may lose anybody"
            return all(n.require_parts().replica.state.round >= wanted for n in self.running)

        await self.until(are_there, f"round {wanted}")

    def all_know_all(self) -> bool:
        everyone = {node.require_parts().home.key.node_id for node in self.running}
        return all(known_to(node) >= everyone for node in self.running)

    def describe_lost(self) -> list[str]:
        """Who does not know whom, and why."""
        lost = []
        for node in self.running:
            now = node.now()
            for other in self.running:
                node_id = other.require_parts().home.key.node_id
                if node_id not in known_to(node):
                    peer = node.require_parts().membership.peers.get(node_id)
                    why = peer and (now - peer.last_seen_s, peer.is_suspected, peer.heartbeat)
                    lost.append(f"{self.running.index(node)}: {self.running.index(other)} {why}")
        return lost

    async def until(self, condition: object, what: str) -> None:
        assert callable(condition)
        deadline = CLOCK.monotonic() + WITHIN_S
        while not condition():
            assert all(node.state is State.RUNNING for node in self.running)
            if CLOCK.monotonic() > deadline:
                raise TimeoutError(f"not within {WITHIN_S} s: {what}")
            await CLOCK.sleep(LOOK_S)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    await nodes.stop(*nodes.running)


@pytest.fixture
async def tracker(nodes: Nodes) -> AsyncIterator[Tracker]:
    tracker = Tracker(nodes.token)
    await tracker.start()
    yield tracker
    await tracker.kill()


def heartbeat_of(node: NodeCore) -> str:
    return str(node.require_parts().carriers.heartbeat_endpoint)


def http_of(node: NodeCore) -> Endpoint:
    return node.require_parts().web.endpoint


@pytest.mark.slow
@pytest.mark.timeout(4 * WITHIN_S)
async def test_nobody_notices_and_newcomers_join_by_any_peer(
    nodes: Nodes, tracker: Tracker, caplog: pytest.LogCaptureFixture
):
    anna, bert, carl = [
        await nodes.start(n, trackers=tracker.url) for n in ("anna", "bert", "carl")
    ]
    await nodes.until_all_contribute()
    await nodes.until(nodes.all_know_all, "everyone to know everyone")
    caplog.set_level(logging.INFO)
    caplog.clear()

    await tracker.kill()
    await nodes.more_rounds(ROUNDS)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]

    await nodes.start("dora", trackers=tracker.url, peers=heartbeat_of(bert))
    await nodes.start("emil", trackers=f"{tracker.url},http://{http_of(anna)}")
    await nodes.start("frida", peers=f"dns://localhost:{http_of(carl).port}")
    await nodes.until_all_contribute()
    await nodes.until(nodes.all_know_all, "everyone to know everyone")

    await nodes.stop(carl)
    again = await nodes.start("carl", trackers=tracker.url)
    assert again.require_parts().membership.acquaintance.memory.num_known > 0
    await nodes.until(nodes.all_know_all, "everyone to know who came back")
    await nodes.more_rounds(ROUNDS)
