"""Whether this process runs in a container, and with whose network.

Refuses to know what that means for peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text

_MARKS = (".dockerenv", "run/.containerenv")
_ENGINES = ("docker", "kubepods", "containerd", "libpod", "lxc")


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What the file system tells of a container."""

    is_container: bool = False
    has_own_network: bool = False
    """Whether its interfaces are ends of pairs whose other ends are outside: a bridge or an
    overlay of the engine, with addresses that the network outside does not know."""


def read_container(root: Path = ROOT) -> ContainerFacts:
    """Read everything once; a few small files.

    Args:
        root: What stands for `/`.
    """
    group = read_text(root / "proc/1/cgroup") + read_text(root / "proc/self/cgroup")
    is_marked = any((root / mark).exists() for mark in _MARKS)
    is_container = is_marked or any(engine in group for engine in _ENGINES)
    return ContainerFacts(
        is_container=is_container,
        has_own_network=is_container and any(_outer_ends(root)),
    )


def _outer_ends(root: Path) -> Iterator[bool]:
    """For each interface but loopback, whether its other end is in another network."""
    try:
        folders = sorted((root / "sys/class/net").iterdir())
    except OSError:
        return
    for folder in folders:
        index, link = read_text(folder / "ifindex"), read_text(folder / "iflink")
        if folder.name != "lo" and index and link:
            yield index != link and not (folder.parent / "docker0").exists()
