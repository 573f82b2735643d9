"""The network interfaces that are up, with their addresses.

Refuses to know which of them leads to the peers.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from neuroswarm.hardware.container import is_way_out_only
from neuroswarm.hardware.facts import ROOT

_INNER = ("docker", "br-", "veth", "virbr", "cni", "flannel", "podman", "lxcbr")


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface that is up and has an address that other machines may know."""

    name: str
    addresses: tuple[str, ...]
    """IPv4 and IPv6, without loopback and link-local ones."""
    mtu: int
    """Longest packet, bytes; 0 if it is not known."""
    is_wireless: bool = False
    is_inner: bool = False
    """Whether it leads to containers of this machine only: by its name, or as docker tells."""


def read_interfaces(root: Path = ROOT) -> tuple[Interface, ...]:
    """The interfaces that are up, in order of their names, loopback left out.

    Args:
        root: What stands for `/`, for what files tell; the rest the running kernel says.
    """
    states = psutil.net_if_stats()
    found = []
    for name, entries in sorted(psutil.net_if_addrs().items()):
        state = states.get(name)
        addresses = tuple(str(entry.address) for entry in entries if _is_known_outside(entry))
        if state is not None and state.isup and addresses:
            wireless = (root / "sys/class/net" / name / "wireless").exists()
            inner = name.startswith(_INNER) or is_way_out_only(root, addresses)
            found.append(Interface(name, addresses, int(state.mtu), wireless, inner))
    return tuple(found)


def _is_known_outside(entry: object) -> bool:
    if getattr(entry, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        address = ipaddress.ip_address(str(getattr(entry, "address", "")).partition("%")[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)
