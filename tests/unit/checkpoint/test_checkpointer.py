"""The checkpointer with the real store, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_node import SmallNode, full_disk, newest, same

from neuroswarm.checkpoint.budget import ByteBudget
from neuroswarm.checkpoint.checkpointer import POLL_S, Checkpointer, Subject
from neuroswarm.checkpoint.complaint import FIRST_PAUSE_S
from neuroswarm.checkpoint.schedule import PEER_SPACING_S, RISK_SPACING_S, Risk
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.config.sections import CheckpointConfig
from neuroswarm.diloco.outer import advance
from neuroswarm.diloco.state import OuterState
from neuroswarm.hardware.facts import MachineFacts
from neuroswarm.testing.fake_clock import FakeClock

INTERVAL_S = 60.0
LONGEST_S = 30.0


class Scene:
    """A checkpointer, what it saves, and what it said."""

    def __init__(self, folder: Path, *, daily_bytes: int | None = None) -> None:
        self.clock = FakeClock()
        self.node = SmallNode()
        self.store = CheckpointStore(folder, 3)
        self.facts = MachineFacts()
        self.durable: list[int] = []
        self.saved: list[int] = []
        self.may_tell = threading.Event()
        self.may_tell.set()
        self.snapshots = 0
        self.is_out_of_memory = False
        self.noted = 0
        self.budget = ByteBudget(daily_bytes, self.clock.monotonic())
        self.checkpointer = Checkpointer(
            self.store,
            Subject(
                snapshot=self._snapshot,
                describe=lambda: {"about": self.node.outer.round},
                count_steps=lambda: self.node.trainer.total.steps,
                read_facts=lambda: self.facts,
                on_durable=self._on_durable,
                count_noted=lambda: self.noted,
                on_saved=self._on_saved,
            ),
            CheckpointConfig(interval_s=INTERVAL_S),
            budget=self.budget,
            clock=self.clock,
        )

    async def _snapshot(self) -> Snapshot:
        self.snapshots += 1
        if self.is_out_of_memory:
            raise RuntimeError("can't allocate memory")
        return self.node.snapshot()

    async def _on_durable(self, state: OuterState) -> None:
        assert state.digest in self.store.outer_digests(), "on the disk before it is said"
        self.durable.append(state.round)

    def _on_saved(self, round_: int) -> None:
        assert self.may_tell.wait(LONGEST_S)
        self.saved.append(round_)

    def kept(self) -> list[Path]:
        """Everything that belongs into the folder."""
        folder = self.store.paths()[0].parent
        return [*self.store.paths(), *folder.glob("outer-*.safetensors")]

    def commit(self) -> None:
        """Go to a next outer state, that of an empty round."""
        self.node.move(advance(self.node.outer, []).state)
        assert self.node.outer.digest
        self.checkpointer.note_outer(self.node.outer)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONGEST_S):
            while not condition():
                await asyncio.to_thread(lambda: None)

    async def settle(self) -> None:
        """Let what is due be done; what is not due does not come."""
        for _ in range(5):
            await asyncio.to_thread(self.store.paths)
            await asyncio.to_thread(self.store.load_latest)  # waits for what is being written


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


async def test_after_every_outer_sync_both_parts_are_written(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        scene.commit()
        await scene.until(lambda: scene.saved == [0, 1])
        await scene.settle()
    assert scene.durable == [0, 1]
    assert scene.snapshots == 2
    found = CheckpointStore(tmp_path, 3).load_latest()
    assert same(newest(found), scene.node.snapshot())
    assert found is not None
    assert found.meta["about"] == 1


async def test_an_interval_with_steps_brings_a_checkpoint_without_an_outer_state(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        await scene.clock.advance(2 * INTERVAL_S)
        await scene.settle()
        assert scene.saved == [0], "nothing was trained"
        scene.node.trainer.step()
        await scene.clock.advance(POLL_S)
        await scene.until(lambda: scene.saved == [0, 0])
        assert scene.checkpointer.last_reason == "interval"
    assert scene.durable == [0]
    assert same(newest(scene.store.load_latest()), scene.node.snapshot())


async def test_a_risk_brings_one_checkpoint_when_it_appears(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        scene.facts = MachineFacts(battery=0.1, is_discharging=True)
        await scene.clock.advance(POLL_S)
        await scene.until(lambda: len(scene.saved) == 2)
        assert scene.checkpointer.last_reason == Risk.BATTERY.value
        await scene.clock.advance(3 * RISK_SPACING_S)
        await scene.settle()
        assert len(scene.saved) == 2, "it is still there, but not new"
        scene.checkpointer.expect(Risk.PEER)
        await scene.until(lambda: len(scene.saved) == 3)
        assert scene.checkpointer.last_reason == Risk.PEER.value


async def test_peers_that_leave_again_and_again_bring_one_checkpoint_in_ten_minutes(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        for num_saved in (2, 3):
            scene.checkpointer.expect(Risk.PEER)
            await scene.until(lambda wanted=num_saved: len(scene.saved) == wanted)
            for _ in range(3):
                await scene.clock.advance(PEER_SPACING_S / 4)
                scene.checkpointer.expect(Risk.PEER)
                await scene.settle()
            await scene.clock.advance(PEER_SPACING_S / 4 - POLL_S)
            await scene.settle()
            assert len(scene.saved) == num_saved
            await scene.clock.advance(POLL_S)


async def test_the_loop_goes_on_while_somebody_is_told_that_it_is_saved(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.may_tell.clear()
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.checkpointer.num_inner == 1)
        scene.commit()
    last = asyncio.gather(scene.checkpointer.save_last())
    await scene.until(lambda: scene.checkpointer.num_inner == 2)
    assert scene.saved == []
    scene.may_tell.set()
    await last
    assert scene.saved == [0, 1], "in order, though the first call was given up"


async def test_what_is_resumed_is_not_written_again(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.store.save(scene.node.snapshot())
    found = scene.store.load_latest()
    assert found is not None
    scene.checkpointer.note_resumed(found)
    async with scene.checkpointer:
        await scene.clock.advance(3 * INTERVAL_S)
        await scene.settle()
    assert (scene.durable, scene.saved) == ([], [])


async def test_a_short_budget_prefers_outer_states_and_the_end_is_written_anyway(tmp_path: Path):
    size = 8 * SmallNode().outer.num_params
    scene = Scene(tmp_path, daily_bytes=40 * size)
    left = 3.5 * size
    scene.budget.spend(scene.budget.capacity - left, scene.clock.monotonic())
    async with scene.checkpointer:
        for round_ in range(1, 4):
            scene.commit()
            await scene.until(lambda wanted=round_: wanted in scene.durable)
            await scene.settle()
        assert scene.saved == []
        assert scene.checkpointer.get_status()["is_budget_short"]
    await scene.checkpointer.save_last()
    assert scene.saved == [scene.node.outer.round]
    assert same(newest(scene.store.load_latest()), scene.node.snapshot())
    assert scene.budget.left(scene.clock.monotonic()) < size


async def test_what_is_noted_besides_uses_the_budget_too(tmp_path: Path):
    scene = Scene(tmp_path, daily_bytes=4_000_000)
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        scene.noted = 990_000
        scene.commit()
        await scene.until(lambda: scene.checkpointer.get_status()["is_budget_short"] is True)
        await scene.settle()
        assert scene.saved == [0]
        assert scene.budget.left(scene.clock.monotonic()) < 10_000


async def test_a_full_disk_is_said_once_and_writing_goes_on_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    with caplog.at_level(logging.INFO):
        async with scene.checkpointer:
            await scene.until(lambda: scene.saved == [0])
            with full_disk(100):
                for _ in range(4):
                    scene.commit()
                    await scene.settle()
                    await scene.clock.advance(FIRST_PAUSE_S)
                await scene.settle()
                assert scene.checkpointer.get_status()["is_failing"]
                assert scene.durable == [0]
            for _ in range(30):
                await scene.clock.advance(FIRST_PAUSE_S)
            await scene.until(lambda: scene.saved == [0, 4])
    ours = [r for r in caplog.records if r.name.startswith("neuroswarm.checkpoint")]
    assert [r.levelname for r in ours] == ["WARNING", "INFO"]
    assert "training goes on" in ours[0].getMessage()
    assert "again" in ours[1].getMessage()
    assert sorted(os.listdir(tmp_path)) == sorted(p.name for p in scene.kept())


async def test_no_memory_for_a_snapshot_is_no_end(tmp_path: Path):
    scene = Scene(tmp_path)
    scene.is_out_of_memory = True
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.snapshots == 1)
        await scene.settle()
        scene.is_out_of_memory = False
        await scene.clock.advance(3 * FIRST_PAUSE_S)
        await scene.until(lambda: scene.saved == [0])


async def test_a_folder_deleted_meanwhile_is_made_again(tmp_path: Path):
    scene = Scene(tmp_path / "checkpoints")
    scene.checkpointer.note_outer(scene.node.outer)
    async with scene.checkpointer:
        await scene.until(lambda: scene.saved == [0])
        shutil.rmtree(tmp_path / "checkpoints")
        scene.commit()
        await scene.until(lambda: scene.saved == [0, 1])
    assert newest(scene.store.load_latest()).outer.round == 1


async def test_a_failure_at_the_end_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    scene = Scene(tmp_path)
    scene.checkpointer.note_outer(scene.node.outer)
    with full_disk(100):
        await scene.checkpointer.save_last()
    assert "no last checkpoint" in caplog.text
