"""The parts of a node that move its model, without peers, clock or disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import torch

from neuroswarm.checkpoint.said import SaidLog
from neuroswarm.clock import SystemClock
from neuroswarm.config import RoundConfig
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.gossip.asking import Asker
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.committing import Committer
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.holdings import Holdings
from neuroswarm.node.inquiry import Inquirer
from neuroswarm.node.intake import Cohort, Intake
from neuroswarm.node.replica import Replica
from neuroswarm.node.resuming import Resuming
from neuroswarm.node.solo import Solo
from neuroswarm.node.voice import Voice
from neuroswarm.rounds.agreement import Round
from neuroswarm.rounds.history import History
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.speaker import SWARM, Speaker
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.trainer import Trainer
from neuroswarm.transfer.download import StateDownloader
from neuroswarm.wire.signed import Signed

TRAINING = TrainingConfig(lr=1e-2, warmup_steps=3, batch_size=2, context=8, dim=16, num_heads=2)


@dataclass
class Spread:
    """Everything that was spread."""

    signed: list[Signed] = field(default_factory=list)

    def spread(self, signed: Signed, *, inline: bytes | None = None) -> None:
        self.signed.append(signed)


class LoneParts:
    """A node that holds a genesis and is alone in round 0."""

    def __init__(self, compute: ComputeThread, log: SaidLog | None = None) -> None:
        torch.set_num_threads(1)
        clock, me = FakeClock(), Speaker("me")
        shape = TransformerConfig(dim=16, num_layers=1, num_heads=2, context=8)
        text = FlatTokens(torch.arange(4000) % 97)
        batches = WindowSampler(text, context=8, batch_size=2, seed=0)
        self.compute = compute
        self.trainer = Trainer(Transformer(shape, seed=0), batches, TRAINING, clock=SystemClock())
        fragments = self.trainer.fragments
        named = zip(fragments.names, self.trainer.local(), strict=True)
        self.genesis = genesis(Rules(), fragments.architecture, named)
        self.me = me.about(0, self.genesis.digest)
        self.replica = Replica(
            compute,
            self.trainer,
            me.node_id,
            max_retained_states=4,
            solo=Solo(self.trainer, SystemClock()),
        )
        self.peers = PeerTable(me.node_id, 5.0)
        crowd = Crowd(self.peers, SWARM, clock, mute_after_s=30.0)
        cohort = Cohort(
            SWARM,
            fragments.architecture,
            tuple(zip(fragments.names, fragments.sizes, strict=True)),
        )
        self.intake = Intake(
            cohort,
            crowd,
            want=lambda _contribution, _holder: None,
            wake=lambda: None,
            tell=lambda _amendment: None,
            max_archive_bytes=10**6,
        )
        self.intake.history = History(0, self.genesis.digest)
        rpc = MemoryNetwork(0).rpc(me.node_id)
        asker = Asker(rpc, RoundConfig(), blame=crowd.misbehaved)
        holdings = Holdings(
            self.intake, asker, crowd=crowd, replica=self.replica, log=None, clock=clock
        )
        self.inquirer = Inquirer(
            StateDownloader(
                rpc,
                fragments.architecture,
                cohort.shape,
                folder=None,
                blame=crowd.misbehaved,
                clock=clock,
            ),
            asker,
            crowd=crowd,
            replica=self.replica,
        )
        self.committer = Committer(self.replica, holdings, intake=self.intake, crowd=crowd)
        self.spread = Spread()
        self.voice = Voice(me.key, SWARM, log, self.spread)
        self.resuming = Resuming(
            self.intake, crowd=crowd, holdings=holdings, replica=self.replica, voice=self.voice
        )
        self.round = Round(me.node_id, started_at=0.0, cfg=RoundConfig())


@asynccontextmanager
async def lone_parts(log: SaidLog | None = None) -> AsyncIterator[LoneParts]:
    """Parts that have adopted their genesis."""
    async with ComputeThread(num_threads=1, clock=SystemClock()) as compute:
        parts = LoneParts(compute, log)
        await parts.replica.adopt(parts.genesis)
        yield parts
