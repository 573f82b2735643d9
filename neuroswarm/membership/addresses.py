"""What a host's text says of where it is: equal forms, and who shares one place.

Refuses to look names up.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_V6_PREFIX_BITS = 64


def canonical(host: str) -> str:
    """The one form of a host: IPv4 out of its IPv6 mapping, short IPv6, lower case."""
    address = _address(host)
    return host.lower().rstrip(".") if address is None else str(address)


def group_of(host: str) -> str:
    """Who one party has at hand at once: an IPv4 address, an IPv6 /64, a name's last two labels.

    Single-label names, which only a local resolver knows, are one group.
    """
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _V6_PREFIX_BITS), strict=False))
    if address is not None:
        return str(address)
    labels = canonical(host).split(".")
    return ".".join(labels[-2:]) if len(labels) > 1 else "(local names)"


def is_local_only(host: str) -> bool:
    """Whether it means the machine itself, whoever says it."""
    address = _address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def is_loopback(host: str) -> bool:
    """Whether it is an address that leads to the machine itself, and not all of its addresses."""
    address = _address(host)
    return address is not None and address.is_loopback


def is_same_host(host: str, other: str | None) -> bool:
    """Whether both texts surely mean one place; two loopback addresses do."""
    if other is None:
        return False
    return canonical(host) == canonical(other) or (is_local_only(host) and is_local_only(other))


@lru_cache(maxsize=4096)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if host.lower() == "localhost":
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
