"""Binding a socket to the address that a node listens on: one, or all of them.

Refuses to know what is listened for.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from neuroswarm.values import Endpoint

_MAPPED = "::ffff:"


def bind(kind: socket.SocketKind, listen: Endpoint) -> socket.socket:
    """A bound socket that does not block.

    Args:
        kind: `SOCK_STREAM` or `SOCK_DGRAM`.
        listen: Address, or a name of this machine, and port; port 0 takes a free one. `0.0.0.0` is
            every IPv4 address, `::` every address of either kind.

    Raises:
        OSError: the address is none of this machine, or the port is taken or forbidden.
    """
    family, _, protocol, _, address = socket.getaddrinfo(
        listen.host, listen.port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    with contextlib.ExitStack() as undo:
        bound = undo.enter_context(socket.socket(family, kind, protocol))
        bound.setblocking(False)
        if family == socket.AF_INET6:
            is_all = ipaddress.ip_address(str(address[0])).is_unspecified
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_all)
        if kind == socket.SOCK_STREAM:  # a connection that lingers does not count
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        undo.pop_all()
    return bound


def unmapped(host: str) -> str:
    """An IPv4 address out of the form that it has on a socket for both kinds; others unchanged."""
    is_mapped = host.lower().startswith(_MAPPED) and "." in host
    return host[len(_MAPPED) :] if is_mapped else host


def mapped(host: str) -> str:
    """The form that an IPv4 address has on a socket for both kinds; IPv6 ones unchanged."""
    return host if ":" in host else _MAPPED + host
