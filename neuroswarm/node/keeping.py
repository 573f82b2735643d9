"""Makes a node's checkpointer: what it saves, where, and whom it tells.

Knows nothing of when checkpoints are written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from neuroswarm.checkpoint.budget import ByteBudget
from neuroswarm.checkpoint.checkpointer import Checkpointer, Subject
from neuroswarm.checkpoint.schedule import Risk
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.clock import Clock
from neuroswarm.config.sections import CheckpointConfig
from neuroswarm.hardware.facts import read_facts
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.home import Home
from neuroswarm.node.recorder import Recorder
from neuroswarm.node.replica import Replica
from neuroswarm.node.reporting import Reporter
from neuroswarm.values import NodeId


class Expectant(Protocol):
    """Who saves before a risky moment."""

    def expect(self, risk: Risk) -> None:
        """Somebody knows of a risky moment ahead."""
        ...


def make_checkpointer(
    home: Home,
    replica: Replica,
    recorder: Recorder,
    reporter: Reporter,
    *,
    cfg: CheckpointConfig,
    clock: Clock,
) -> Checkpointer:
    """Wire it up; starts nothing."""

    async def snapshot() -> Snapshot:
        return replace(await replica.snapshot(), meta=reporter.own_meta())

    subject = Subject(
        snapshot=snapshot,
        describe=reporter.meta,
        count_steps=lambda: replica.total_steps,
        read_facts=read_facts,
        count_noted=lambda: home.bytes_written - home.store.bytes_written,
        on_durable=recorder.on_durable,
        on_saved=home.forget_before,
    )
    budget = ByteBudget(home.daily_bytes, clock.monotonic())
    home.held.has_room = lambda num_bytes: budget.left(clock.monotonic()) >= num_bytes
    checkpointer = Checkpointer(home.store, subject, cfg, budget=budget, clock=clock)
    recorder.note_state = checkpointer.note_outer
    return checkpointer


def save_before_leaving(peers: PeerTable, swarm_id: bytes, checkpoints: Expectant) -> None:
    """Have a checkpoint written whenever a peer of this swarm says that it leaves.

    Peers of other swarms with the same token come and go without being missed.
    """

    def on_leaving(node_id: NodeId) -> None:
        peer = peers.get(node_id)
        if peer is not None and peer.heartbeat.swarm_id == swarm_id:
            checkpoints.expect(Risk.PEER)

    peers.on_leaving(on_leaving)
