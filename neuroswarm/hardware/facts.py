"""Memory, battery and heat as the kernel tells them, now.

Linux tells them in files; elsewhere, and where a file is missing, a fact is absent. Refuses to
judge: what is a risk is decided by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")

_MILLI = 1000.0
_HOT_TRIPS = ("passive", "hot", "critical")
_THROTTLED_NOW = 0x1 | 0x2 | 0x4 | 0x8
"""Bits of the Raspberry Pi's `get_throttled`: undervoltage, frequency capped, throttled, soft
temperature limit; those above 15 say the same of the past."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the machine tells; None for what it does not."""

    available_memory: float | None = None
    """Share of the memory that programs can still get without swapping, 0 to 1."""
    memory_stall: float | None = None
    """Share of the last 10 s in which all programs waited for memory, 0 to 1."""
    battery: float | None = None
    """Charge of the emptiest battery, 0 to 1."""
    is_discharging: bool = False
    """Whether a battery is being emptied."""
    heat_margin_c: float | None = None
    """Kelvins between the hottest zone and the lowest temperature at which it slows down;
    0 or below once it does."""
    is_throttled: bool = False
    """Whether the firmware says that it slows the processor down, or that the voltage is low."""


def read_facts(root: Path = ROOT) -> MachineFacts:
    """Read everything once. A few small files; blocks for less than a millisecond each.

    Args:
        root: What stands for `/`.
    """
    batteries = list(_batteries(root))
    return MachineFacts(
        available_memory=_read_available_memory(root),
        memory_stall=_read_memory_stall(root),
        battery=min((charge for charge, _ in batteries), default=None),
        is_discharging=any(is_emptied for _, is_emptied in batteries),
        heat_margin_c=min(_heat_margins(root), default=None),
        is_throttled=bool(_read_throttled(root) & _THROTTLED_NOW),
    )


def _read_available_memory(root: Path) -> float | None:
    wanted = {"MemTotal", "MemAvailable"}
    found: dict[str, int] = {}
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        number = _to_int(rest.removesuffix("kB"))
        if name in wanted and number is not None:
            found[name] = number
    if found.keys() != wanted or found["MemTotal"] <= 0:
        return None
    return found["MemAvailable"] / found["MemTotal"]


def _read_memory_stall(root: Path) -> float | None:
    """The `avg10` of the line `full` of the pressure file."""
    for line in (_read(root / "proc/pressure/memory") or "").splitlines():
        kind, *pairs = line.split()
        if kind != "full":
            continue
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name == "avg10":
                percent = _to_float(value)
                return None if percent is None else percent / 100
    return None


def _batteries(root: Path) -> Iterator[tuple[float, bool]]:
    """Charge of each battery of the machine, and whether it is being emptied."""
    for folder in _folders(root / "sys/class/power_supply"):
        is_own = _read(folder / "scope") != "Device"  # a mouse has a battery too
        if _read(folder / "type") != "Battery" or not is_own:
            continue
        percent = _to_float(_read(folder / "capacity"))
        if percent is not None:
            yield percent / 100, _read(folder / "status") == "Discharging"


def _heat_margins(root: Path) -> Iterator[float]:
    for zone in _folders(root / "sys/class/thermal"):
        here = _to_float(_read(zone / "temp"))
        limits = [limit for limit in _trip_points(zone) if limit > 0]
        if here is not None and limits:
            yield (min(limits) - here) / _MILLI


def _trip_points(zone: Path) -> Iterator[float]:
    for kind in sorted(zone.glob("trip_point_*_type")):
        limit = _to_float(_read(zone / kind.name.replace("_type", "_temp")))
        if _read(kind) in _HOT_TRIPS and limit is not None:
            yield limit


def _read_throttled(root: Path) -> int:
    """The Raspberry Pi's word on undervoltage, caps and heat; 0 elsewhere."""
    text = _read(root / "sys/devices/platform/soc/soc:firmware/get_throttled")
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _to_int(text: str) -> int | None:
    number = _to_float(text)
    return None if number is None else int(number)


def _to_float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
