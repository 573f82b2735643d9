"""What other programs take of this machine: processor time, memory, swap; and where power is from.

Linux, macOS and Windows. Refuses to judge.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text

_IDLE = ("idle", "iowait")
_INCLUDED = ("guest", "guest_nice")
"""Counted within other fields already."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds since some moment, over all processors."""

    busy_s: float
    all_s: float
    own_s: float
    """Of this process, part of `busy_s`."""


def read_processor_time() -> ProcessorTime:
    """Read the counters once."""
    whole, own = psutil.cpu_times()._asdict(), psutil.Process().cpu_times()
    named = {name: value for name, value in whole.items() if name not in _INCLUDED}
    idle_s = sum(named.get(name, 0.0) for name in _IDLE)
    total_s = sum(named[name] for name in named if name not in ("interrupt", "dpc"))
    return ProcessorTime(total_s - idle_s, total_s, own.user + own.system)


class LoadMeter:
    """Measures what other programs took between two looks.

    Args:
        read: Reads the counters.
    """

    def __init__(self, read: Callable[[], ProcessorTime] = read_processor_time) -> None:
        self._read = read
        self._before = read()

    def others(self) -> float | None:
        """Share of the processors' time since the last call that others took, 0 to 1."""
        before, now = self._before, self._read()
        passed_s = now.all_s - before.all_s
        if passed_s <= 0:
            return None
        self._before = now
        others_s = (now.busy_s - before.busy_s) - (now.own_s - before.own_s)
        return min(1.0, max(0.0, others_s / passed_s))


def read_on_mains(root: Path = ROOT) -> bool | None:
    """Whether the machine does not run on its battery; None if it is not known.

    A machine with neither battery nor supply that tells (desktops, boards) is not known.
    """
    try:
        folders = sorted((root / "sys/class/power_supply").iterdir())
    except OSError:
        return _ask_system() if root == ROOT else None
    online = [
        read_text(folder / "online")
        for folder in folders
        if read_text(folder / "type") != "Battery"
    ]
    told = [text == "1" for text in online if text in ("0", "1")]
    if told:
        return any(told)
    states = [
        read_text(folder / "status")
        for folder in folders
        if read_text(folder / "type") == "Battery" and read_text(folder / "scope") != "Device"
    ]
    return None if not states else "Discharging" not in states


def _ask_system() -> bool | None:
    ask = getattr(psutil, "sensors_battery", None)
    battery = None
    if ask is not None:
        with contextlib.suppress(OSError, RuntimeError):
            battery = ask()
    return None if battery is None else battery.power_plugged


def read_swapped_bytes() -> int:
    """Bytes written to swap since the machine started; 0 where it is not told."""
    with contextlib.suppress(OSError, RuntimeError):
        return int(psutil.swap_memory().sout)
    return 0


def read_resident_bytes() -> int:
    """Memory of this process that lies in the machine's memory now."""
    return int(psutil.Process(os.getpid()).memory_info().rss)
