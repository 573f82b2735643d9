"""Which processor this machine has, and how much of it this process may use.

Refuses to judge: what cannot run torch is decided by whoever asks.
"""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from neuroswarm.hardware.control_groups import Version, walk_groups
from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text

_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
}


_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""Of x86 and of ARM."""


@dataclass(frozen=True, slots=True)
class ProcessorFacts:
    """What is known of the processor; empty or None for what the machine does not tell."""

    architecture: str = ""
    """As `uname -m` says: `x86_64`, `aarch64`, `armv7l`."""
    bits: int = 64
    """Width of this Python's addresses: 32 on a 32-bit system, whatever the kernel is."""
    name: str = ""
    flags: frozenset[str] = frozenset()
    """Names of instruction sets, as the kernel spells them; empty if it tells none."""
    num_usable: int = 1
    """Processors that this process may run on."""
    quota: float | None = None
    """Processors' worth of time that the control groups allow; None without a limit."""
    num_physical: int | None = None
    """Cores of the machine: two hardware threads of one core share what does the arithmetic."""
    board: str = ""
    """Name of the board, like `Raspberry Pi 4 Model B Rev 1.4`; empty where there is none."""
    has_nvidia: bool = False
    """Whether the driver of an NVIDIA accelerator is loaded."""

    @property
    def num_cores(self) -> int:
        """Cores that this process can keep busy: affinity, physical cores and whole quota."""
        bounds = [self.num_usable]
        if self.num_physical is not None:
            bounds.append(self.num_physical)
        if self.quota is not None:
            bounds.append(int(self.quota))
        return max(1, min(bounds))

    @property
    def has_bf16(self) -> bool:
        """Whether it multiplies matrices of bfloat16 itself; without it that is emulated."""
        return bool(self.flags & _BF16_FLAGS)


def read_processor(root: Path = ROOT) -> ProcessorFacts:
    """Read everything once; a few small files.

    Args:
        root: What stands for `/`; architecture, bits and affinity are this process's anyway.
    """
    lines = _fields(read_text(root / "proc/cpuinfo"))
    flags = lines.get("flags") or lines.get("Features") or ""
    board = read_text(root / "sys/firmware/devicetree/base/model").rstrip("\0\n ")
    part = _ARM_PARTS.get(lines.get("CPU part", ""), "")
    return ProcessorFacts(
        architecture=platform.machine(),
        bits=8 * struct.calcsize("P"),
        name=" ".join((lines.get("model name") or part or lines.get("Hardware", "")).split()),
        flags=frozenset(flags.split()),
        num_usable=count_usable(),
        quota=read_quota(root),
        num_physical=_count_physical() if root == ROOT else None,
        board=board,
        has_nvidia=(root / "proc/driver/nvidia/version").exists(),
    )


def read_processor_share(root: Path = ROOT) -> ProcessorFacts:
    """What may change while a node runs: affinity and quota; cheap enough to be read often."""
    return ProcessorFacts(
        num_usable=count_usable(), quota=read_quota(root), num_physical=_count_physical()
    )


def _fields(text: str) -> dict[str, str]:
    """The first value of each name in `/proc/cpuinfo`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def count_usable() -> int:
    """Processors that this process may run on now."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _count_physical() -> int | None:
    found: int | None = psutil.cpu_count(logical=False)
    return found


def read_quota(root: Path = ROOT) -> float | None:
    """Processors' worth of time that this process gets; None if there is no limit.

    A group's quota holds for all groups below it, so the smallest on the way up counts.
    """
    found = (_quota_of(folder, version) for folder, version in walk_groups(root, "cpu"))
    return min((quota for quota in found if quota is not None), default=None)


def _quota_of(folder: Path, version: Version) -> float | None:
    if version is Version.V2:
        words = read_text(folder / "cpu.max").split()
    else:
        words = [read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")]
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None  # "max", or no such files
    return quota / period if quota > 0 and period > 0 else None
