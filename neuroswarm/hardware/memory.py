"""How much memory this process may take: what is free, and what limits it.

Reads control groups of both versions and the process's own limits. Refuses to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from neuroswarm.hardware.control_groups import Version, walk_groups
from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text
from neuroswarm.hardware.process_limits import read_address_space_limit

_NO_LIMIT = 2**60
"""Limits from here on are none: version 1 writes the largest multiple of a page for it."""


_OUT_OF_MEMORY = (
    "failed to map segment", "annot allocate memory", "MemoryError", "can't allocate",
    "not enough memory", "out of memory", "allocate memory",
)  # fmt: skip
"""What torch, its allocators and the dynamic loader say."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Bytes; None for what the machine does not tell, or does not limit."""

    total: int | None = None
    available: int | None = None
    """What programs can still get without swapping."""
    group_limit: int | None = None
    """Limit of the control group, of those that this process is in, with the least room left."""
    group_used: int | None = None
    """What the group with that limit uses, without what it can give back."""
    address_space_limit: int | None = None
    """Limit of this process's address space (`ulimit -v`)."""
    counts_groups: bool | None = None
    """Whether the kernel keeps memory control groups at all: without them it ignores the memory
    limits of containers, as Raspberry Pi OS does by default."""

    @property
    def room(self) -> int | None:
        """Bytes that this process can still get; address space is another thing."""
        bounds = [] if self.available is None else [self.available]
        if self.group_limit is not None:
            bounds.append(max(0, self.group_limit - (self.group_used or 0)))
        return min(bounds, default=None)


@dataclass(frozen=True, slots=True)
class _Group:
    """Names of a group's files in one version of control groups."""

    limit: str
    used: str
    inactive: str


_FILES = {
    Version.V1: _Group("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    Version.V2: _Group("memory.max", "memory.current", "inactive_file"),
}


def read_memory(root: Path = ROOT) -> MemoryFacts:
    """Read everything once; a few small files.

    Args:
        root: What stands for `/`; the limit of the address space is this process's anyway.
    """
    totals = _kilobytes(read_text(root / "proc/meminfo"))
    if not totals and root == ROOT:  # not Linux
        whole = psutil.virtual_memory()
        totals = {"MemTotal": whole.total, "MemAvailable": whole.available}
    groups = walk_groups(root, "memory")
    limits = [found for folder, kind in groups for found in _limits(folder, _FILES[kind])]
    limit, used = min(limits, key=_room_of, default=(None, None))
    return MemoryFacts(
        total=totals.get("MemTotal"),
        available=totals.get("MemAvailable"),
        group_limit=limit,
        group_used=used,
        address_space_limit=read_address_space_limit(),
        counts_groups=_counts_groups(root),
    )


def is_out_of_memory(error: str) -> bool:
    """Whether the text of an error, of torch or of the loader, says that memory was lacking."""
    return any(sign in error for sign in _OUT_OF_MEMORY)


def _kilobytes(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0]) * 1024
    return found


def _room_of(found: tuple[int, int]) -> int:
    limit, used = found
    return limit - used


def _limits(folder: Path, kind: _Group) -> Iterator[tuple[int, int]]:
    """Limit and use of a group; nothing if it has none."""
    limit = read_text(folder / kind.limit)
    if not limit.isdecimal() or int(limit) >= _NO_LIMIT:
        return
    used = read_text(folder / kind.used)
    stat = dict(line.split(maxsplit=1) for line in _pairs(read_text(folder / "memory.stat")))
    inactive = stat.get(kind.inactive, "0")
    spare = int(inactive) if inactive.isdecimal() else 0
    yield int(limit), max(0, int(used) - spare) if used.isdecimal() else 0


def _pairs(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line.split()) == 2]


def _counts_groups(root: Path) -> bool | None:
    controllers = read_text(root / "sys/fs/cgroup/cgroup.controllers")
    if controllers:
        return "memory" in controllers.split()
    for line in read_text(root / "proc/cgroups").splitlines():
        words = line.split()
        if len(words) == 4 and words[0] == "memory":
            return words[3] == "1"
    return None
