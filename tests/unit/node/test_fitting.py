"""A running node follows its machine: quota, battery, hours, memory, and the speed of its peers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import torch

from neuroswarm.config.guest import GuestConfig
from neuroswarm.config.sections import ResourceConfig
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.hardware.capacity import MIB, read_capacity
from neuroswarm.hardware.load import ProcessorTime
from neuroswarm.hardware.memory import MemoryFacts
from neuroswarm.node.fitting import LOAD_S, Fitting, Machine
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.training.batching import Batching
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.trainer import Trainer


@dataclass
class Script:
    """A machine that is whatever the test says."""

    threads: int = 2
    is_on_mains: bool | None = True
    memory: MemoryFacts = field(default_factory=lambda: MemoryFacts(8 * 2**30, 4 * 2**30))
    time: ProcessorTime = field(default_factory=lambda: ProcessorTime(0.0, 0.0, 0.0))
    swapped: int = 0
    resident: int = 300 * MIB

    def machine(self) -> Machine:
        return Machine(
            read_memory=lambda: self.memory,
            read_on_mains=lambda: self.is_on_mains,
            read_processor_time=lambda: self.time,
            read_swapped_bytes=lambda: self.swapped,
            read_resident_bytes=lambda: self.resident,
            choose_num_threads=lambda limit: min(limit, self.threads),
        )


@dataclass
class Scene:
    """A fitting between a script and a compute thread that runs."""

    script: Script
    clock: FakeClock
    compute: ComputeThread
    trainer: Trainer

    def fitting(self, guest: GuestConfig | None = None, **resources: object) -> Fitting:
        return Fitting(
            self.compute, self.trainer, read_capacity(),
            settings=(ResourceConfig(**resources), guest or GuestConfig()),
            clock=self.clock, machine=self.script.machine(),
        )  # fmt: skip


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = FakeClock()
    batches = WindowSampler(FlatTokens(tiny_text()), context=16, batch_size=1, seed=0)
    trainer = Trainer(TinyModel(), batches, TrainingConfig(context=16), clock=clock)
    trainer.batching = Batching(num_draws=16, is_fixed=False)
    async with ComputeThread(num_threads=2, clock=clock) as compute:
        yield Scene(Script(), clock, compute, trainer)


async def test_the_threads_of_the_next_step_follow_the_quota(scene: Scene):
    fitting = scene.fitting()
    await fitting.look()
    scene.script.threads = 1
    await fitting.look()
    seen: list[int] = []
    taken = torch.get_num_threads

    def step() -> None:
        seen.append(taken())
        scene.compute.pause_training()

    scene.compute.start_training(step)
    while not seen:
        await scene.compute.run(taken)
    assert seen == [1]
    assert fitting.get_status()["num_threads"] == 1


async def test_it_rests_on_battery_says_why_and_goes_on(scene: Scene):
    fitting = scene.fitting(GuestConfig(only_on_mains=True, settle_s=10))
    changes: list[str] = []
    fitting.on_change = lambda: changes.append(fitting.reason)
    await fitting.look()
    scene.script.is_on_mains = False
    await fitting.look()
    assert fitting.duty.is_resting
    assert fitting.get_status()["rests_because"] == "on battery"
    scene.script.is_on_mains = True
    await fitting.look()
    assert fitting.duty.is_resting
    await scene.clock.advance(10)
    await fitting.look()
    assert not fitting.duty.is_resting
    assert changes == ["on battery", ""]


async def test_it_makes_room_for_other_programs(scene: Scene):
    fitting = scene.fitting(GuestConfig(only_when_idle=True))
    await scene.clock.advance(LOAD_S)
    scene.script.time = ProcessorTime(busy_s=10, all_s=10, own_s=10)
    await fitting.look()
    assert fitting.reason == ""
    await scene.clock.advance(LOAD_S)
    scene.script.time = ProcessorTime(busy_s=20, all_s=20, own_s=12)
    await fitting.look()
    assert fitting.reason == "the machine is in use"
    assert fitting.get_status()["others_load"] == pytest.approx(0.8)


async def test_it_pauses_instead_of_thrashing(scene: Scene):
    fitting = scene.fitting()
    await fitting.look()
    await scene.clock.advance(1)
    scene.script.swapped += 100 * MIB
    await fitting.look()
    assert fitting.reason == "memory is short"
    scene.script.memory = MemoryFacts(8 * 2**30, 2**20)
    await scene.clock.advance(60)
    await fitting.look()
    assert fitting.reason == "memory is short"
    scene.script.memory = MemoryFacts(8 * 2**30, 4 * 2**30)
    for _ in range(2):
        await fitting.look()
        await scene.clock.advance(30)
    await fitting.look()
    assert fitting.reason == ""


async def test_a_process_larger_than_its_limit_takes_smaller_pieces(scene: Scene):
    fitting = scene.fitting(available_memory_mb=400)
    await fitting.look()
    assert scene.trainer.batching.piece is None
    scene.script.resident = 500 * MIB
    await fitting.look()
    start = read_capacity().start_windows
    assert scene.trainer.batching.piece == start // 2
    await fitting.look()
    assert scene.trainer.batching.piece == start // 4


async def test_steps_grow_or_shrink_to_those_of_the_peers(scene: Scene):
    fitting, batching = scene.fitting(), scene.trainer.batching
    fitting.peers_step_s = lambda: [0.4, 0.4, 0.0]
    await fitting.look()
    assert batching.num_draws == 16  # nothing is measured here yet
    for _ in range(2):
        batching.note(16, 16, 1.6)
    assert fitting.start_step_s == pytest.approx(1.6)
    await fitting.look()
    assert batching.num_draws == 4
    fitting.peers_step_s = lambda: ()
    await fitting.look()
    assert batching.num_draws == 16  # alone again


async def test_a_share_of_the_time_counts_as_slowness(scene: Scene):
    fitting, batching = scene.fitting(GuestConfig(cpu_share=0.25)), scene.trainer.batching
    for _ in range(2):
        batching.note(16, 16, 1.6)
    assert fitting.start_step_s == pytest.approx(6.4)
    fitting.peers_step_s = lambda: [3.2]
    await fitting.look()
    assert batching.num_draws == 11  # of 4.5 s, the mean of both, a quarter is work
