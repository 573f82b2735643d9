"""Addresses as people write them: a host with or without scheme and port.

Refuses to know what they lead to.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from neuroswarm.errors import ConfigError
from neuroswarm.wire.hosts import is_address, is_numbers


class WrittenAddress(NamedTuple):
    """An address in parts."""

    scheme: str
    """`http` if none was written."""
    host: str
    port: int | None
    """None if none was written."""


def read_address(
    text: str, complaint: str, *, schemes: tuple[str, ...], page: str
) -> WrittenAddress:
    """Read `host`, `host:port`, `[v6]`, `[v6]:port`, a bare IPv6 address, or any behind a scheme.

    Args:
        text: What was written.
        complaint: How an error begins.
        schemes: Those that may be written.
        page: The one path that may follow.

    Raises:
        ConfigError: it is none of these; says why.
    """
    place = f"[{text}]" if text.count(":") > 1 and is_address(text) else text
    try:
        parts = urlsplit(place if "://" in place else f"http://{place}")
        host = parts.hostname or ""
        host.encode("idna")
    except ValueError as error:
        raise ConfigError(f"{complaint}: its host is neither a name nor an address") from error
    if parts.scheme not in schemes:
        raise ConfigError(f"{complaint}: it begins with {parts.scheme}://")
    if not host or set(host) & set(" %"):
        raise ConfigError(f"{complaint}: its host is neither a name nor an address")
    if is_numbers(host) and not is_address(host):
        raise ConfigError(f"{complaint}: an IPv4 address is four numbers from 0 to 255")
    port = _read_port(parts, complaint)
    if parts.path not in ("", "/", page, f"{page}/") or parts.query or parts.username is not None:
        raise ConfigError(f"{complaint}: nothing may follow the port")
    return WrittenAddress(parts.scheme, host, port)


def _read_port(parts: SplitResult, complaint: str) -> int | None:
    why = f"{complaint}: a port is a number from 1 to 65535"
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(why) from error
    if port == 0:
        raise ConfigError(why)
    return port
