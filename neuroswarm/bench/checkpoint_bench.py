"""Measures what checkpoints cost a node that trains: stalls, bytes, speed.

A plain model trains on the real compute thread; the real replica, checkpointer and store save it.
Knows nothing of the command line.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from neuroswarm.bench.checkpoint_report import Cycle, summarise
from neuroswarm.checkpoint.budget import ByteBudget
from neuroswarm.checkpoint.checkpointer import Checkpointer, Subject
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.clock import Clock, SystemClock
from neuroswarm.config.sections import CheckpointConfig
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import Batch
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import FragmentState, OuterState, genesis
from neuroswarm.hardware.disk import sync
from neuroswarm.hardware.facts import MachineFacts
from neuroswarm.node.replica import Replica
from neuroswarm.node.solo import Solo
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.threads import choose_num_threads, run_beside
from neuroswarm.training.trainer import Trainer
from neuroswarm.values import NODE_ID_BYTES, NodeId

P = ParamSpec("P")
T = TypeVar("T")

WARM_UP_STEPS = 3
MAX_CHECKPOINTS = 1
TOKENS = 8
Span = tuple[float, float]
"""Begin and end on the monotonic clock, seconds."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What to measure."""

    num_params: int
    """About so many; at least 1000."""
    cycles: int
    """Rounds; each writes an outer state and a checkpoint, and makes a plain copy."""
    folder: Path
    """An empty folder on the disk to measure."""
    num_threads: int


class PlainModel(nn.Module):
    """An embedding and a linear head: parameters in two large pieces, little arithmetic."""

    def __init__(self, num_params: int) -> None:
        super().__init__()
        width = 512 if num_params >= 4_000_000 else 32
        rows = max(2, round(num_params / (2 * width)))
        self.embedding = nn.Embedding(rows, width)
        self.head = nn.Linear(width, rows, bias=False)

    def forward(self, inputs_BT: Tensor) -> Tensor:
        """Logits [B, T, rows]."""
        result: Tensor = self.head(self.embedding(inputs_BT))
        return result


class PlainBatches:
    """The same few tokens, shifted."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens

    def train(self, index: int) -> Batch:
        """Batch number `index`: one row of 8 tokens."""
        tokens = (torch.arange(TOKENS + 1) + index) % self._num_tokens
        return tokens[None, :-1], tokens[None, 1:]

    def held_out(self, index: int, num_batches: int) -> Batch:
        """As `train`."""
        return self.train(index + num_batches)


class MeteredCompute(ComputeThread):
    """Notes when jobs and steps ran."""

    def __init__(self, *, num_threads: int, clock: Clock) -> None:
        super().__init__(num_threads=num_threads, clock=clock)
        self.jobs: list[Span] = []
        self.steps: list[Span] = []
        self._now = clock.monotonic

    async def run(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ComputeThread.run`."""

        def metered() -> T:
            began = self._now()
            try:
                return job(*args, **kwargs)
            finally:
                self.jobs.append((began, self._now()))

        return await super().run(metered)

    def metered_step(self, step: Callable[[], object]) -> Callable[[], object]:
        """A step that is noted."""

        def metered() -> object:
            began = self._now()
            result = step()
            self.steps.append((began, self._now()))
            return result

        return metered

    async def stepped(self, num_steps: int) -> None:
        """Wait until so many more steps have ended."""
        wanted = len(self.steps) + num_steps
        while len(self.steps) < wanted:
            await super().run(lambda: None)

    async def stall_around(self, job: Span) -> float:
        """Seconds that no step ran because of this job: from the step before to the one after."""
        while not any(began >= job[1] for began, _ in self.steps):
            await super().run(lambda: None)
        before = max((end for _, end in self.steps if end <= job[0]), default=job[0])
        return min(began for began, _ in self.steps if began >= job[1]) - before


@dataclass(eq=False)
class Scene:
    """A node without a network."""

    compute: MeteredCompute
    replica: Replica
    store: CheckpointStore
    clock: Clock
    outer_done: asyncio.Event = field(default_factory=asyncio.Event)
    inner_done: asyncio.Event = field(default_factory=asyncio.Event)
    outer_at: float = 0.0
    inner_at: float = 0.0
    snapshot_job: Span = (0.0, 0.0)
    snapshot_bytes: tuple[int, int] = (0, 0)
    """Bytes of a snapshot that were copied, and bytes of it in all."""

    def make_checkpointer(self) -> Checkpointer:
        """The real one, which tells this scene what it did."""
        subject = Subject(
            snapshot=self._snapshot,
            describe=dict,
            count_steps=lambda: 0,
            read_facts=MachineFacts,
            on_durable=self._on_durable,
            count_noted=lambda: 0,
            on_saved=self._on_saved,
        )
        budget = ByteBudget(None, 0.0)
        return Checkpointer(
            self.store, subject, CheckpointConfig(), budget=budget, clock=self.clock
        )

    async def _snapshot(self) -> Snapshot:
        snapshot = await self.replica.snapshot()
        self.snapshot_job = self.compute.jobs[-1]
        copied = (*snapshot.local, *snapshot.inner[0].values())
        self.snapshot_bytes = sum(tensor.nbytes for tensor in copied), snapshot.inner_bytes
        return snapshot

    async def _on_durable(self, _state: OuterState) -> None:
        self.outer_at = self.clock.monotonic()
        self.outer_done.set()

    def _on_saved(self, _round: int) -> None:
        self.inner_at = self.clock.monotonic()
        self.inner_done.set()


def run_checkpoint_bench(setup: Setup, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure; returns the report as JSON values.

    Args:
        setup: What to measure.
        say: Told of the progress, a line at a time.

    Cost: some 50 bytes of memory and 60 of disk a parameter.
    """
    return asyncio.run(_measure(setup, say))


async def _measure(setup: Setup, say: Callable[[str], None]) -> dict[str, Any]:
    clock = SystemClock()
    threads = choose_num_threads(setup.num_threads)
    async with MeteredCompute(num_threads=threads, clock=clock) as compute:
        model = PlainModel(setup.num_params)
        data = PlainBatches(model.embedding.num_embeddings)
        trainer = Trainer(model, data, TrainingConfig(warmup_steps=0), clock=clock)
        me = NodeId(bytes(NODE_ID_BYTES))
        solo = Solo(trainer, clock)
        replica = Replica(compute, trainer, me, max_retained_states=1, solo=solo)
        await replica.adopt(await _make_genesis(compute, trainer))
        num_params = replica.state.num_params
        say(f"{num_params:,} parameters, {setup.cycles} rounds, {threads} threads")
        compute.start_training(compute.metered_step(trainer.step))
        await compute.stepped(WARM_UP_STEPS)
        idle_from = len(compute.steps)
        await compute.stepped(WARM_UP_STEPS)
        idle_step_s = statistics.median(end - began for began, end in compute.steps[idle_from:])
        scene = Scene(compute, replica, CheckpointStore(setup.folder, MAX_CHECKPOINTS), clock)
        cycles = []
        async with scene.make_checkpointer() as checkpointer:
            for number in range(setup.cycles):
                cycles.append(await _cycle(scene, checkpointer))
                say(f"round {number + 1} of {setup.cycles}: {cycles[-1]}")
        compute.pause_training()
    plain_s = await asyncio.to_thread(_write_plainly, setup.folder, 8 * num_params, clock)
    return summarise(num_params, cycles, plain_write_s=plain_s, idle_step_s=idle_step_s)


async def _make_genesis(compute: ComputeThread, trainer: Trainer) -> OuterState:
    params = await compute.run(trainer.local)
    fragments = trainer.fragments
    named = zip(fragments.names, params, strict=True)
    return await run_beside(genesis, Rules(), fragments.architecture, named)


async def _cycle(scene: Scene, checkpointer: Checkpointer) -> Cycle:
    """One outer state and one checkpoint, each in the background, and one plain copy."""
    compute, store, now = scene.compute, scene.store, scene.clock.monotonic
    new = await run_beside(_next_state, scene.replica.state)
    await scene.replica.move(new)
    scene.outer_done.clear()
    scene.inner_done.clear()
    written_before, steps_before = store.bytes_written, len(compute.steps)
    began = now()
    checkpointer.note_outer(new)
    await scene.outer_done.wait()
    for_outer = [end - start for start, end in compute.jobs if began <= start < scene.outer_at]
    await scene.inner_done.wait()
    steps = compute.steps[steps_before:]
    copied, inner_bytes = scene.snapshot_bytes
    stall_s = await compute.stall_around(scene.snapshot_job)
    source = torch.ones(copied, dtype=torch.uint8)
    await compute.run(source.clone)
    copy_stall_s = await compute.stall_around(compute.jobs[-1])
    return Cycle(
        stall_s=stall_s,
        copy_stall_s=copy_stall_s,
        outer_stall_s=sum(for_outer),
        outer_write_s=scene.outer_at - began,
        inner_write_s=scene.inner_at - scene.snapshot_job[1],
        outer_bytes=8 * new.num_params,
        inner_bytes=inner_bytes,
        copied_bytes=copied,
        bytes_written=store.bytes_written - written_before,
        step_s=statistics.median(end - start for start, end in steps) if steps else 0.0,
    )


def _next_state(state: OuterState) -> OuterState:
    """Another outer state of the same shape, with its digest."""
    fragments = tuple(
        FragmentState(f.name, f.params * 1.0001, f.momentum + 0.0001) for f in state.fragments
    )
    new = OuterState(state.round + 1, fragments, {}, state.rules, state.architecture)
    assert new.digest, "known before it is noted"
    return new


def _write_plainly(folder: Path, num_bytes: int, clock: Clock) -> float:
    """Seconds to write so many bytes, with a hash and a wait for the disk, in one file."""
    piece = os.urandom(min(num_bytes, 8 * 1024 * 1024))
    path, left, hasher = folder / "plain", num_bytes, hashlib.sha256()
    began = clock.monotonic()
    with path.open("wb", buffering=0) as file:
        while left > 0:
            part = piece[:left]
            hasher.update(part)
            left -= file.write(part)
    sync(path)
    took_s = clock.monotonic() - began
    path.unlink()
    return took_s
