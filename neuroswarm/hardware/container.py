"""Whether this process runs in a container, with whose network, and which of it others share.

Refuses to know what that means for peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def is_way_out_only(root: Path, addresses: Iterable[str]) -> bool:
    """Whether an interface of a docker container only leads outside, its network shared by no one.

    Docker gives a container on an overlay a second interface, on its bridge `docker_gwbridge`:
    the addresses there are alike on all machines. It writes the addresses of a container on every
    network into the container's hosts file, but for that one (moby, libnetwork/endpoint.go).

    Args:
        root: What stands for `/`.
        addresses: Those of the interface.

    Returns:
        False where docker tells nothing: outside its containers, on the host's network, and
        with a hosts file of somebody else's.
    """
    if not (root / _MARKS[0]).exists() or not read_container(root).has_own_network:
        return False
    named = _read_own_names(root)
    return bool(named) and named.isdisjoint(addresses)


def _read_own_names(root: Path) -> set[str]:
    """Addresses that the hosts file has for this host's name, but for loopback."""
    hostname = read_text(root / "proc/sys/kernel/hostname")
    lines = [line.partition("#")[0].split() for line in read_text(root / "etc/hosts").splitlines()]
    return {
        address
        for address, *names in filter(None, lines)
        if hostname in names and not address.startswith("127.") and address != "::1"
    }


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
