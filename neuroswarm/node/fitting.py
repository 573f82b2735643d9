"""Fits a running node to its machine: threads, size of steps, memory, and when to rest.

Looks every second; decisions are pure (`training.batching`, `training.guest`). Knows no rounds:
the node says what follows from a rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config.guest import GuestConfig
from neuroswarm.config.sections import ResourceConfig
from neuroswarm.hardware import load
from neuroswarm.hardware.allocator import give_back_memory
from neuroswarm.hardware.capacity import MIB, Capacity, whole_memory
from neuroswarm.hardware.device_class import DeviceClass
from neuroswarm.hardware.facts import read_facts
from neuroswarm.hardware.memory import MemoryFacts, read_memory
from neuroswarm.hardware.priority import lower_process
from neuroswarm.service import Service
from neuroswarm.training.batching import choose_step_s
from neuroswarm.training.compute import ComputeThread
from neuroswarm.training.duty import Duty
from neuroswarm.training.guest import Conditions, Manners
from neuroswarm.training.threads import choose_num_threads
from neuroswarm.training.trained_model import TrainedModel

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
"""How often the machine is looked at."""

LOAD_S = 5.0
"""How long what other programs take is measured before it counts."""

MAX_OVER = 1.1
"""Share of the user's limit from which on the process is too large."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How the machine is looked at; the defaults are the real ones."""

    read_memory: Callable[[], MemoryFacts] = read_memory
    read_on_mains: Callable[[], bool | None] = load.read_on_mains
    read_processor_time: Callable[[], load.ProcessorTime] = load.read_processor_time
    read_swapped_bytes: Callable[[], int] = load.read_swapped_bytes
    read_resident_bytes: Callable[[], int] = load.read_resident_bytes
    choose_num_threads: Callable[[int], int] = choose_num_threads


class Fitting(Service):
    """Watches the machine for one node."""

    name = "fitting"

    def __init__(
        self,
        compute: ComputeThread,
        trainer: TrainedModel,
        capacity: Capacity,
        *,
        settings: tuple[ResourceConfig, GuestConfig],
        clock: Clock,
        machine: Machine | None = None,
    ) -> None:
        """Watch nothing yet.

        Args:
            compute: Takes the steps.
            trainer: Its steps get larger or smaller.
            capacity: The machine as it was when the node started.
            settings: What the node may take, and when.
            clock: Spaces the looks, and tells the local time.
            machine: How to look at it.
        """
        super().__init__()
        self.peers_step_s: Callable[[], Iterable[float]] = lambda: ()
        """Seconds of a first step at each training peer."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a rest begins or ends."""
        self.describe_devices: Callable[[], list[dict[str, str]]] = list
        """Each device and what it does."""
        self.reason = ""
        """Why the node rests now; empty if it does not."""
        self._resources, self._guest = settings
        self._compute, self._trainer, self._capacity = compute, trainer, capacity
        self._clock = clock
        self.machine = machine or Machine()
        """How it is looked at."""
        self.duty = Duty(self._guest.cpu_share, clock)
        """Lets the compute thread work and rest."""
        self._manners = Manners(self._guest)
        self._load = load.LoadMeter(self.machine.read_processor_time)
        self._others_load: float | None = None
        self._load_at = self._swap_at = clock.monotonic()
        self._swapped = self.machine.read_swapped_bytes()
        self._halvings_told = 0

    @property
    def device_class(self) -> DeviceClass:
        """What kind of machine it is."""
        return self._capacity.device_class

    @property
    def start_step_s(self) -> float:
        """Seconds of a first step here, with the rests between; 0 if it is not measured."""
        step_s = self._trainer.batching.start_step_s
        return 0.0 if step_s is None else step_s / self._guest.cpu_share

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._guest.niceness:
            lower_process(self._guest.niceness)
        await self.look()

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._watch(),)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Look at the machine once, and follow."""
        self._decide(await asyncio.to_thread(self._read))
        self._aim()

    def _read(self) -> Conditions:
        """Read the machine, and follow what can be followed at once."""
        machine, now = self.machine, self._clock.monotonic()
        self._compute.num_threads = machine.choose_num_threads(self._resources.max_cpu_threads)
        memory, facts = machine.read_memory(), read_facts()
        if now - self._load_at >= LOAD_S:
            self._load_at, self._others_load = now, self._load.others()
        local = time.localtime(self._clock.wall())
        self._ease(memory)
        return Conditions(
            minute=60 * local.tm_hour + local.tm_min,
            is_on_mains=machine.read_on_mains() if self._guest.only_on_mains else None,
            others_load=self._others_load,
            room_share=_room_share(memory),
            memory_stall=facts.memory_stall,
            swapped_bytes_per_s=self._swap_rate(now),
        )

    def _swap_rate(self, now: float) -> float:
        before, self._swapped = self._swapped, self.machine.read_swapped_bytes()
        passed_s, self._swap_at = now - self._swap_at, now
        return max(0, self._swapped - before) / passed_s if passed_s > 0 else 0.0

    def _ease(self, memory: MemoryFacts) -> None:
        """Take less memory if the process is larger than the user allows."""
        limit_mb = self._resources.available_memory_mb
        if limit_mb is None or self.machine.read_resident_bytes() < MAX_OVER * limit_mb * MIB:
            return
        give_back_memory()
        if self.machine.read_resident_bytes() < MAX_OVER * limit_mb * MIB:
            return
        batching, windows = self._trainer.batching, self._capacity.start_windows
        if batching.num_halvings == self._halvings_told and batching.halve(windows):
            logger.warning(
                "the process is larger than resources.available_memory_mb %d: %s windows at once",
                limit_mb,
                batching.piece,
            )
        self._halvings_told = batching.num_halvings

    def _decide(self, at: Conditions) -> None:
        before, self.reason = self.reason, self._manners.decide(self._clock.monotonic(), at)
        if self.reason == before:
            return
        if self.reason:
            logger.info("training rests: %s", self.reason)
            self.duty.rest()
            give_back_memory()
        else:
            logger.info("training goes on")
            self.duty.work()
        self.on_change()

    def _aim(self) -> None:
        own_s = self.start_step_s
        if own_s:
            step_s = choose_step_s(own_s, [s for s in self.peers_step_s() if s > 0])
            self._trainer.batching.aim(step_s * self._guest.cpu_share)

    def get_status(self) -> Mapping[str, object]:
        """The part of `/status` on the machine, as JSON values."""
        capacity, batching, facts = self._capacity, self._trainer.batching, read_facts()
        processor = capacity.processor
        budget = capacity.budget_bytes
        return {
            "device_class": capacity.device_class.value,
            "processor": processor.board or processor.name,
            "num_cores": processor.num_cores,
            "num_threads": self._compute.num_threads,
            "cpu_quota": processor.quota,
            "memory_budget_mb": None if budget is None else budget // MIB,
            "memory_used_mb": self.machine.read_resident_bytes() // MIB,
            "accelerator": capacity.accelerator.value,
            "device": str(self._trainer.device),
            "devices": self.describe_devices(),
            "precision": "bf16" if self._trainer.is_bf16 else "fp32",
            "is_throttled": facts.is_throttled,
            "heat_margin_c": facts.heat_margin_c,
            "battery": facts.battery,
            "on_mains": self.machine.read_on_mains(),
            "start_windows": capacity.start_windows,
            "windows_per_step": batching.num_windows,
            "windows_at_once": batching.piece,
            "start_step_s": self.start_step_s,
            "cpu_share": self._guest.cpu_share,
            "others_load": self._others_load,
            "rests_because": self.reason,
            "trains_not_because": self._trainer.why_idle,
        }


def _room_share(memory: MemoryFacts) -> float | None:
    """Share of the memory that is left; None if it is not known."""
    room, whole = memory.room, whole_memory(memory)
    return None if room is None or not whole else room / whole
