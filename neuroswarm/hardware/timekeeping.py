"""Whether anything keeps this machine's clock right.

Refuses to say what time it is.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.hardware.facts import ROOT

_TIMEX_BYTES = 512
"""More than `struct timex` takes anywhere; all zero, it only asks."""
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class Timekeeping:
    """What the kernel tells of the clock."""

    is_synchronized: bool | None = None
    """Whether a time service keeps it right, as the kernel was told; None if it does not say."""
    has_battery: bool | None = None
    """Whether a clock runs on while the machine is off; None if it is not known."""


def read_timekeeping(root: Path = ROOT) -> Timekeeping:
    """Ask once.

    Args:
        root: What stands for `/`; whether the clock is synchronized the running kernel says.
    """
    folder = root / "sys/class/rtc"
    try:
        has_battery: bool | None = any(folder.iterdir())
    except OSError:
        has_battery = False if (root / "sys/class").is_dir() else None
    return Timekeeping(_is_synchronized(), has_battery)


def _is_synchronized() -> bool | None:
    if sys.platform != "linux":
        return None
    ask = getattr(ctypes.CDLL(None), "adjtimex", None)
    if ask is None:
        return None
    state: int = ask(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR
