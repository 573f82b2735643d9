"""All addresses of a host name, asked for so that a deaf resolver holds nothing else up.

Refuses to know whose names they are, and keeps no answers: a name is asked for anew each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable

from aiohttp.abc import AbstractResolver, ResolveResult

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerUnreachable
from neuroswarm.wire.hosts import is_address

MAX_ADDRESSES = 256
"""Addresses taken of one name; more are left out."""

MAX_PENDING = 16
"""Names that may be looked up at once; further ones fail."""

MAX_CACHED = 64
"""Names whose addresses are kept by a `CachedLookup`."""

TIMEOUT_S = 4.0
"""Longest wait for a resolver."""

Lookup = Callable[[str], Awaitable[tuple[str, ...]]]
"""From a host to its addresses, at least one; PeerUnreachable if there are none to be had."""


def resolve_by_system(host: str) -> list[str]:
    """What the machine's resolver says, best first; OSError or UnicodeError if nothing. Blocks."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class NameLookup:
    """`Lookup` by the machine's resolver, in threads of its own.

    A resolver that nobody answers keeps a thread for half a minute: in the loop's pool, where the
    disk's work waits too, a few retries would hold up everything. These threads end with the
    process, and there is one for each name at most.
    """

    def __init__(
        self,
        resolve: Callable[[str], Iterable[str]] = resolve_by_system,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take what blocks for a name and gives its addresses, and the longest wait for it."""
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._pending: dict[str, asyncio.Future[tuple[str, ...]]] = {}

    async def __call__(self, host: str) -> tuple[str, ...]:
        """Every IPv4 and IPv6 address of a host; an address is its own.

        Raises:
            PeerUnreachable: there is no such host, or no answer in time.

        Cancellation: the look-up goes on in its thread; who asks next waits for the same one.
        """
        if is_address(host):
            return (host,)
        pending = self._pending.get(host)
        if pending is None:
            if len(self._pending) >= MAX_PENDING:
                raise PeerUnreachable(f"{MAX_PENDING} names wait for an answer from DNS already")
            pending = self._begin(host)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await asyncio.shield(pending)
        except TimeoutError as error:
            raise PeerUnreachable(
                f"no answer from DNS about {host} in {self._timeout_s:g} s"
            ) from error
        if not found:
            raise PeerUnreachable(f"unknown host {host}")
        return found

    def _begin(self, host: str) -> asyncio.Future[tuple[str, ...]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[str, ...]] = loop.create_future()
        self._pending[host] = answer

        def finish(found: tuple[str, ...]) -> None:
            del self._pending[host]
            if not answer.done():
                answer.set_result(found)

        def ask() -> None:
            found: tuple[str, ...] = ()
            with contextlib.suppress(OSError, UnicodeError):
                found = _usable(self._resolve(host))
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, found)

        threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
        return answer


class CachedLookup:
    """A `Lookup` that asks another one for each name once in a while only, failures included."""

    def __init__(self, lookup: Lookup, clock: Clock, *, lifetime_s: float = 60.0) -> None:
        """Take what is asked, and for how many seconds its answers are good."""
        self._lookup = lookup
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._answers: dict[str, tuple[tuple[str, ...], float]] = {}

    async def __call__(self, host: str) -> tuple[str, ...]:
        """As the other one, or as it answered lately; PeerUnreachable if that was nothing.

        While 64 names are known, the oldest answer gives way to a new one.
        """
        found, until = self._answers.get(host, ((), -math.inf))
        if self._clock.monotonic() >= until:
            self._answers.pop(host, None)
            found = await self._ask(host)
            while len(self._answers) >= MAX_CACHED:
                del self._answers[next(iter(self._answers))]
            self._answers[host] = found, self._clock.monotonic() + self._lifetime_s
        if not found:
            raise PeerUnreachable(f"unknown host {host}")
        return found

    async def _ask(self, host: str) -> tuple[str, ...]:
        try:
            return await self._lookup(host)
        except PeerUnreachable:
            return ()


class ConnectionResolver(AbstractResolver):
    """Lets aiohttp use a `Lookup`."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The host's addresses as aiohttp takes them; OSError if there are none."""
        try:
            addresses = await self._lookup(host)
        except PeerUnreachable as error:
            raise OSError(str(error)) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to release."""


def _usable(addresses: Iterable[str]) -> tuple[str, ...]:
    """Each address once, without those that mean something on one interface only."""
    unique = dict.fromkeys(a for a in addresses if "%" not in a)
    return tuple(unique)[:MAX_ADDRESSES]
