"""Which texts name a host to everybody alike.

Knows nothing of whether it exists or who is there.
"""

from __future__ import annotations

import ipaddress
import re

from neuroswarm.wire import limits

_NUMBERS = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*")
"""What resolvers read as an IPv4 address, some in old forms: `127.1`, `2130706433`, `0x7f.1`."""

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def is_host(text: str) -> bool:
    """Whether `text` is an address, or a name as DNS knows it.

    Not one with the scope of a machine's own interface (`fe80::1%eth0`), none of several machines
    or of none (multicast, broadcast, `0.0.0.0`), and nothing that a resolver, a socket or gRPC
    would take for something else (`unix:/path`, a zero byte, `10.1`).
    """
    if len(text) > limits.MAX_HOST_CHARS:
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        is_name = all(_LABEL.fullmatch(label) for label in text.split("."))
        return is_name and not is_numbers(text)
    return "%" not in str(address) and _is_of_one(address)


def is_address_of_one(text: str) -> bool:
    """Whether `text` is an address of one machine: what is sent there goes to nobody else."""
    try:
        return _is_of_one(ipaddress.ip_address(text))
    except ValueError:
        return False


def is_numbers(text: str) -> bool:
    """Whether `text` is all numbers and dots, whether they make an IPv4 address or not."""
    return _NUMBERS.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether `text` is an IPv4 or IPv6 address, so that nothing has to be looked up."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_of_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    is_broadcast = isinstance(address, ipaddress.IPv4Address) and address.is_reserved
    return not (address.is_multicast or address.is_unspecified or is_broadcast)
