"""What this machine can give to a node now: its class, cores, memory and accelerator.

Reads; refuses to judge what a node needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroswarm.hardware.device_class import (
    START_WINDOWS,
    Accelerator,
    Chassis,
    ClassFacts,
    DeviceClass,
    classify,
)
from neuroswarm.hardware.facts import ROOT, MachineFacts, read_facts
from neuroswarm.hardware.kernel_files import read_text
from neuroswarm.hardware.memory import MemoryFacts, read_memory
from neuroswarm.hardware.processor import ProcessorFacts, read_processor

MIB = 1024 * 1024

_PORTABLE = frozenset({8, 9, 10, 11, 12, 14, 30, 31, 32})
_DESKTOP = frozenset({3, 4, 5, 6, 7, 13, 15, 16, 24, 35, 36})
_SERVER = frozenset({17, 22, 23, 25, 28, 29})
"""Chassis types of the SMBIOS reference specification (DSP0134 3.6, 7.4.1)."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a node may count on."""

    device_class: DeviceClass
    processor: ProcessorFacts
    memory: MemoryFacts
    machine: MachineFacts
    accelerator: Accelerator
    budget_bytes: int | None
    """Memory that the node may still take: what is available, within its control group and the
    user's limit; None if nothing of that is known."""

    @property
    def start_windows(self) -> int:
        """Windows of an inner step before anything is measured."""
        return START_WINDOWS[self.device_class]


def read_capacity(
    *,
    limit_mb: int | None = None,
    accelerator: Accelerator = Accelerator.NONE,
    root: Path = ROOT,
) -> Capacity:
    """Read everything once; some small files.

    Args:
        limit_mb: What the user gives the node (`resources.available_memory_mb`), MB.
        accelerator: What torch found; reading it takes torch, which this does without.
        root: What stands for `/`.
    """
    processor, memory, machine = read_processor(root), read_memory(root), read_facts(root)
    facts = ClassFacts(
        processor,
        memory_bytes=whole_memory(memory),
        accelerator=accelerator,
        has_battery=machine.battery is not None,
        chassis=_read_chassis(root),
    )
    budget = choose_budget(memory, limit_mb)
    return Capacity(classify(facts), processor, memory, machine, accelerator, budget)


def choose_budget(memory: MemoryFacts, limit_mb: int | None) -> int | None:
    """Bytes that a node may still take; None if neither machine nor user tell a limit."""
    bounds = [] if memory.room is None else [memory.room]
    if limit_mb is not None:
        bounds.append(limit_mb * MIB)
    return min(bounds, default=None)


def whole_memory(memory: MemoryFacts) -> int | None:
    """Bytes that programs of the machine, or of the container, have together."""
    bounds = [size for size in (memory.total, memory.group_limit) if size is not None]
    return min(bounds, default=None)


def _read_chassis(root: Path) -> Chassis:
    text = read_text(root / "sys/class/dmi/id/chassis_type")
    kind = int(text) if text.isdecimal() else 0
    if kind in _PORTABLE:
        return Chassis.PORTABLE
    if kind in _DESKTOP:
        return Chassis.DESKTOP
    return Chassis.SERVER if kind in _SERVER else Chassis.UNKNOWN
