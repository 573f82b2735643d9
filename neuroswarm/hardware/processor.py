"""Which processor this machine has, and how much of it this process may use.

Refuses to judge: what cannot run torch is decided by whoever asks.
"""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text

_ARM_PARTS = {
    "0xd03": "Cortex-A53",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
}


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
    """Processors' worth of time that the control group allows; None without a limit."""
    board: str = ""
    """Name of the board, like `Raspberry Pi 4 Model B Rev 1.4`; empty where there is none."""
    has_nvidia: bool = False
    """Whether the driver of an NVIDIA accelerator is loaded."""


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
        num_usable=_count_usable(),
        quota=_read_quota(root),
        board=board,
        has_nvidia=(root / "proc/driver/nvidia/version").exists(),
    )


def _fields(text: str) -> dict[str, str]:
    """The first value of each name in `/proc/cpuinfo`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _count_usable() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_quota(root: Path) -> float | None:
    """Of control groups, version 2 (`cpu.max`) or 1 (two files); None if there is no limit."""
    words = read_text(root / "sys/fs/cgroup/cpu.max").split()
    if not words:
        folder = root / "sys/fs/cgroup/cpu"
        words = [read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us")]
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None  # "max", or no such files
    return quota / period if quota > 0 and period > 0 else None
