"""Which host a node tells the others to reach it at.

Refuses to guess from the list of interfaces: bridges and virtual ones look like any other.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from neuroswarm.errors import ConfigError
from neuroswarm.wire.hosts import is_host

LOOPBACK = "127.0.0.1"
_PORT = 9  # never sent to: connecting a UDP socket only looks up the route
_SOMEWHERE_ELSE = "192.0.2.1"  # RFC 5737: no machine; stands for a name that does not resolve yet
_RESOLVE_TIMEOUT_S = 2.0


async def choose_announced_host(
    listen_host: str, *, announce: str | None = None, hints: Sequence[str] = ()
) -> str:
    """The host that peers are told.

    What was asked for wins, then the address listened on. A node that listens everywhere
    announces its own address on the route to the first hint that is another machine.

    Args:
        listen_host: Address that the node listens on.
        announce: Host name or address asked for; None for none.
        hints: Hosts of trackers and known peers, names or addresses, best first.

    Returns:
        A host name or address; loopback if all hints are this machine, or there are none.

    Raises:
        ConfigError: no peer could use the host that was asked for.

    Cancellation: nothing is left behind but a name look-up in a worker thread.
    """
    asked = listen_host if announce is None else announce
    if not _is_unspecified(asked):
        if not is_host(asked):
            raise ConfigError(
                f"cannot announce host {asked!r} to peers: neither an address without a scope nor "
                "a name of letters, digits and hyphens (set network.announce_host)"
            )
        return asked
    for hint in hints:
        for address in await _resolve(hint) or [_SOMEWHERE_ELSE]:
            host = route_to(address)
            if host is not None and not ipaddress.ip_address(host).is_loopback:
                return host
    return LOOPBACK


def route_to(address: str) -> str | None:
    """This machine's address on the route to `address`; None if there is no route.

    Sends no packet. `address` is a literal IPv4 or IPv6 address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


async def _resolve(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, _PORT, type=socket.SOCK_DGRAM)
    except (OSError, TimeoutError, UnicodeError):
        return []
    return [str(entry[4][0]) for entry in found]


def _is_unspecified(host: str) -> bool:
    try:
        return host == "" or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
