"""One node of a swarm in one process: its ends on the in-memory network, and what it did.

Knows nothing of the other members (`neuroswarm.testing.swarm`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.node.core import NodeCore
from neuroswarm.node.parts import Parts
from neuroswarm.node.replica import Tamper
from neuroswarm.node.statistics import Statistics
from neuroswarm.service import Service, State
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.transport import Pipe, Pipes
from neuroswarm.values import Endpoint, NodeId, short

REST_S = 0.002
LOOK_S = 0.01


class MemoryCarriers(Service):
    """A node's ends on a `MemoryNetwork`."""

    name = "carriers"

    def __init__(self, network: MemoryNetwork, node_id: NodeId, host: str) -> None:
        super().__init__()
        self.grpc_endpoint = Endpoint(host, 8101)
        self.heartbeat_endpoint = heartbeat_endpoint(host)
        self.rpc: MemoryRpc = network.rpc(node_id, self.grpc_endpoint)
        self.datagrams: MemoryDatagrams = network.datagrams(self.heartbeat_endpoint, node_id)
        self.dht_endpoint = dht_endpoint(host)
        self.dht_datagrams: MemoryDatagrams = network.datagrams(self.dht_endpoint, node_id)

    def use_pipes(self, pipes: Pipes) -> None:
        """Do without: in memory every node is called straight."""

    def accept(self, pipe: Pipe) -> None:
        """Let nothing in: nobody makes pipes here."""
        pipe.close()

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.datagrams)
        await stack.enter_async_context(self.dht_datagrams)
        await stack.enter_async_context(self.rpc)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        ends = (self.datagrams, self.dht_datagrams, self.rpc)
        return tuple(end.wait_closed() for end in ends)


def heartbeat_endpoint(host: str) -> Endpoint:
    """Where a member with that host takes heartbeats."""
    return Endpoint(host, 9999)


def dht_endpoint(host: str) -> Endpoint:
    """Where a member with that host takes the DHT's datagrams, if it takes part in it."""
    return Endpoint(host, 8101)


@dataclass(eq=False)
class Member:
    """One life of one node of a `Swarm`."""

    name: str
    host: str
    folder: Path
    """Its state folder."""
    core: NodeCore
    key: NodeKey
    model_seed: int
    is_trainer: bool
    tamper: Tamper | None
    step_s: float
    """Least time of an inner step, seconds."""
    clock: Clock
    data: Path | None = None
    """What it trains on; None for `tiny_text`."""
    rests_at: int | None = None
    """Inner steps since its last publication at which it rests; None: those of two rounds."""
    first_round: int = -1
    """Round of the state with which it started."""

    @property
    def node_id(self) -> NodeId:
        """Its identity, the same in every life."""
        return self.key.node_id

    @property
    def parts(self) -> Parts:
        """Its parts; once it is started."""
        return self.core.require_parts()

    @property
    def round(self) -> int:
        """Round of the outer state held; -1 without one."""
        parts = self.core.parts
        return parts.replica.state.round if parts and parts.replica.has_state else -1

    @property
    def digest(self) -> bytes:
        """Digest of the outer state held."""
        return self.parts.replica.state.digest

    @property
    def statistics(self) -> Statistics:
        """What it counted in this life."""
        return self.parts.reporter.statistics

    def begin_training(self) -> None:
        """Take part in rounds and take inner steps."""
        trainer = self.parts.trainer
        plenty = self.rests_at or 2 * self.core.config.diloco.inner_steps

        def step_or_rest() -> None:
            if trainer.progress.steps < plenty:
                self.parts.replica.step()
                time.sleep(self.step_s)
            else:
                time.sleep(REST_S)  # the others need the cores

        duty = self.parts.fitting.duty
        self.core.begin_training()
        self.parts.compute.start_training(lambda: duty.step(step_or_rest))

    async def events(self) -> list[dict[str, Any]]:
        """What it wrote into its event log in all lives, once all of it is written."""
        while True:
            is_running, wanted = self.core.state is State.RUNNING, self.round
            if is_running:
                await self.parts.recorder.drained()
            events = await asyncio.to_thread(_read_events, self.folder / "events.jsonl")
            told = {event["round"] for event in events if event["event"] == "commit"}
            if not is_running or wanted in told or wanted == self.first_round:
                return events
            await asyncio.sleep(LOOK_S)

    async def digests(self) -> dict[int, str]:
        """Digest of every round's outer state on the lineage it stands on, as its log has them.

        A repair replaces the rounds after the fork; what a download passed over is not there.
        """
        digests: dict[int, str] = {}
        for event in await self.events():
            if event["event"] != "commit":
                continue
            if event["is_repair"]:
                kept = 0 if event["is_download"] else event["round"]
                digests = {r: d for r, d in digests.items() if r < kept}
            digests[event["round"]] = event["digest"]
        return digests

    def __repr__(self) -> str:
        driver = self.parts.rounds.driver if self.core.parts else None
        phase = None if driver is None or driver.phase is None else driver.phase.value
        digest = short(self.digest) if self.round >= 0 else "none"
        return f"<{self.name} {self.node_id} round {self.round} state {digest} {phase}>"


def _read_events(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
