"""Asks by datagram and waits for the answer, several times, as datagrams get lost.

Refuses to judge what a silence means.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from neuroswarm.errors import PeerError
from neuroswarm.identity.sealing import Sealer
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes

TRIES = 3
WAIT_S = 1.5
"""Wait for the answer to each try."""

SMALL_BYTES = 128
LARGE_BYTES = limits.MAX_DATAGRAM_BYTES - 8
"""Padding with which a probe is as large as a full datagram."""

_MAX_RECEIVED_BYTES = 2048
_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class Echoed:
    """A datagram's answer."""

    rtt_s: float
    observed: Endpoint
    """This machine's address and port as the other end saw it."""


@contextmanager
def open_udp() -> Iterator[socket.socket]:
    """A non-blocking socket for both families, or for IPv4 where there is no IPv6."""
    try:
        udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    except OSError:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with udp:
        udp.setblocking(False)
        udp.bind(("", 0))
        yield udp


async def ask_by_datagram(
    udp: socket.socket, to: Endpoint, sealer: Sealer, *, is_large: bool
) -> Echoed | None:
    """Send a probe until it is answered, at most three times; None if it is not.

    Args:
        udp: From `open_udp`; one caller at a time.
        to: A literal address, and the port.
        sealer: Holds the swarm's datagram key.
        is_large: Whether question and answer are as large as datagrams get.

    Cancellation: nothing is left behind.
    """
    loop = asyncio.get_running_loop()
    size = LARGE_BYTES if is_large else SMALL_BYTES
    for _ in range(TRIES):
        request = probes.seal_probe(sealer, num_bytes=size, answer_bytes=size)
        began = time.monotonic()
        try:
            async with asyncio.timeout(WAIT_S):
                await loop.sock_sendto(udp, request, _address(udp, to))
                while True:
                    data, _ = await loop.sock_recvfrom(udp, _MAX_RECEIVED_BYTES)
                    echoed = _read(sealer, request, data, began)
                    if echoed is not None:
                        return echoed
        except (TimeoutError, OSError):
            continue  # lost, or refused by the network: the next try tells
    return None


def _read(sealer: Sealer, request: bytes, data: bytes, began: float) -> Echoed | None:
    """What an answer says; None if it is none to this question."""
    try:
        reply = probes.open_probe_reply(sealer, request, data)
    except PeerError:
        return None
    host = reply.observed.host.removeprefix(_MAPPED)
    return Echoed(time.monotonic() - began, Endpoint(host, reply.observed.port))


def _address(udp: socket.socket, to: Endpoint) -> tuple[str, int]:
    is_mapped = udp.family == socket.AF_INET6 and ":" not in to.host
    return (f"{_MAPPED}{to.host}" if is_mapped else to.host, to.port)
