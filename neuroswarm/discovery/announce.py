"""At which hosts a node tells the others to reach it.

The routes to the others tell, and the kernel knows those. The list of interfaces says which of them
lead to this machine's own containers only, and what there is where no route leads out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from neuroswarm.discovery.host_names import Lookup
from neuroswarm.errors import ConfigError, PeerUnreachable
from neuroswarm.hardware.interfaces import Interface, read_interfaces
from neuroswarm.values import unbracketed
from neuroswarm.wire.hosts import is_address, is_host, is_numbers
from neuroswarm.wire.limits import MAX_HOST_CHARS, MAX_HOSTS

LOOPBACK = "127.0.0.1"
_PORT = 9  # never sent to: connecting a UDP socket only looks up the route
_SOMEWHERE_ELSE = ("192.0.2.1", "2001:db8::1")
"""RFC 5737 and 3849: no machines; stand for everybody whose address is not known yet."""

_BROADCAST = "255.255.255.255"
_LOOK_UP_S = 2.0
MAX_HINTS = 16
"""Hosts of hints that routes are looked up to."""


def check_announced(hosts: Iterable[str]) -> tuple[str, ...]:
    """The hosts that were asked for, each once.

    Raises:
        ConfigError: no peer could use one of them, or they are too many.
    """
    asked = tuple(dict.fromkeys(hosts))
    for host in asked:
        if why := _find_fault(host):
            raise ConfigError(
                f"cannot announce host {host!r} to peers: {why} (set network.announce_host)"
            )
    if len(asked) > MAX_HOSTS or sum(map(len, asked[1:])) > MAX_HOST_CHARS:
        raise ConfigError(
            f"cannot announce {len(asked)} hosts to peers: at most {MAX_HOSTS}, with "
            f"{MAX_HOST_CHARS} characters beyond the first (set network.announce_host)"
        )
    return asked


def warn_of_deafness(listen_host: str, announced: Iterable[str]) -> str:
    """That a node does not listen to an address that it announces; empty if it does to all."""
    if not is_address(listen_host) or listen_host == "::":  # a name may stand for both kinds
        return ""
    is_v6 = ":" in listen_host
    for host in announced:
        if is_address(host) and (":" in host) is not is_v6:
            return (
                f"peers are told {host}, which is IPv{4 if is_v6 else 6}, but the node listens on "
                f"{listen_host}, which is IPv{6 if is_v6 else 4} only"
            )
    return ""


def make_finder(
    listen_host: str, asked: Sequence[str], hints: Sequence[str], *, lookup: Lookup
) -> Callable[[], Awaitable[tuple[str, ...]]]:
    """What finds the hosts to announce: those asked for, or as `find_hosts`.

    Raises:
        ConfigError: no peer could use a host that was asked for, or listened on.
    """
    if not asked and _is_unspecified(listen_host):
        return partial(find_hosts, listen_host, hints, lookup=lookup)
    fixed = check_announced(asked or [listen_host])

    async def tell() -> tuple[str, ...]:
        return fixed

    return tell


async def find_hosts(
    listen_host: str, hints: Sequence[str] = (), *, lookup: Lookup
) -> tuple[str, ...]:
    """The addresses of this machine that peers reach it at, best first.

    Those on the routes to the hints, then on the route to everybody else, by IPv4 and, if the node
    listens to that, IPv6; where no route leads out, those of its interfaces. Loopback, link-local
    addresses and bridges to this machine's own containers are left out.

    Args:
        listen_host: `0.0.0.0` if the node listens by IPv4 only, `::` by both.
        hints: Hosts of trackers and known peers, names or addresses, best first.
        lookup: Finds the addresses of names.

    Returns:
        Addresses, at most 4; none if this machine has only itself to talk to.

    Cancellation: nothing is left behind.
    """
    found = await asyncio.gather(*(_resolve(hint, lookup) for hint in hints[:MAX_HINTS]))
    goals = [address for addresses in found for address in addresses]
    interfaces = await asyncio.to_thread(read_interfaces)
    return choose_hosts(
        [route_to(goal) for goal in (*goals, *_SOMEWHERE_ELSE)],
        interfaces,
        has_v6=":" in listen_host,
    )


def choose_hosts(
    routes: Iterable[str | None], interfaces: Sequence[Interface], *, has_v6: bool
) -> tuple[str, ...]:
    """Which of this machine's addresses are told to peers.

    Args:
        routes: Own addresses on the routes to others, best first; None where there is no route.
        interfaces: Those that are up.
        has_v6: Whether IPv6 addresses may be among them.
    """
    inner = {host for interface in interfaces if interface.is_inner for host in interface.addresses}
    outer = [i for i in interfaces if not i.is_inner]

    def is_outer(host: str) -> bool:
        address = ipaddress.ip_address(host)
        is_inside = address.is_loopback or address.is_link_local or address.is_unspecified
        return not is_inside and host not in inner and (has_v6 or address.version == 4)

    taken = [host for host in routes if host is not None and is_outer(host)]
    taken = taken or [host for i in outer for host in i.addresses if is_outer(host)]
    return tuple(dict.fromkeys(taken))[:MAX_HOSTS]


async def find_lan_hosts(listen_host: str) -> tuple[str, ...]:
    """The addresses of this machine on its local networks: as `choose_hosts`, without routes."""
    if not _is_unspecified(listen_host):
        return (listen_host,)
    interfaces = await asyncio.to_thread(read_interfaces)
    return choose_hosts([], interfaces, has_v6=":" in listen_host)


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


async def _resolve(host: str, lookup: Lookup) -> Sequence[str]:
    try:
        async with asyncio.timeout(_LOOK_UP_S):
            return await lookup(host)
    except (PeerUnreachable, TimeoutError):
        return ()


def _find_fault(host: str) -> str:
    """Why peers cannot use this host; empty if they can."""
    text = host.partition("://")[2]
    if text:
        return f"it is a URL: give the host alone, like {_split_port(text.split('/')[0])[0]}"
    alone, port = _split_port(host)
    if port:
        return f"no port belongs to it, the node tells its own ports itself: give {alone}"
    if not host:
        return "it is empty"
    if is_address(host):
        return _find_fault_of_address(host)
    if is_numbers(host):
        return "no IPv4 address, which is four numbers from 0 to 255"
    return "" if is_host(host) else "neither an address nor a name of letters, digits and hyphens"


def _find_fault_of_address(host: str) -> str:
    address = ipaddress.ip_address(host)
    if "%" in host or (address.version == 6 and address.is_link_local):
        return "an address that means something on one interface only leads nobody here"
    if address.is_unspecified:
        return "it means every address of a machine: give one of them"
    if address.is_multicast or host == _BROADCAST:
        return "it means many machines: give an address of this one"
    return ""


def _split_port(text: str) -> tuple[str, str]:
    """A host, and the digits behind its last colon; none behind an IPv6 address."""
    host, _, port = text.rpartition(":")
    is_port = bool(host) and port.isdecimal() and not is_address(text)
    return (unbracketed(host), port) if is_port else (unbracketed(text), "")


def _is_unspecified(host: str) -> bool:
    return host == "" or (is_address(host) and ipaddress.ip_address(host).is_unspecified)
