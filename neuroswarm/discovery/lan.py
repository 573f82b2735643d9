"""Finds and is found on the local network by multicast DNS: no address needs to be given there.

What comes by multicast is nobody's word: names, addresses and a tag that anybody may have sent. All
that follows from it is a sealed greeting, as seldom as to any endpoint that was merely named. The
library parses the packets; refuse it with `network.lan = false` where the network is not to be
trusted that far.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from zeroconf import BadTypeInNameException, IPVersion, ServiceStateChange, Zeroconf
from zeroconf import Error as ZeroconfError
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from neuroswarm.clock import Clock
from neuroswarm.discovery.search import Greeter
from neuroswarm.service import Service
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.hosts import is_address

logger = logging.getLogger(__name__)

KIND = "_neuroswarm._udp.local."
"""The kind of service, as multicast DNS names it."""

MAX_FOUND = 128
"""Services whose endpoints are kept; while they are so many, further ones are not looked at."""

MAX_WAITING = 256
"""Services that wait to be looked up; further ones are dropped, and heard of again."""

MAX_ADDRESSES = 4
"""Addresses taken of one service."""

GREET_S = 15.0
"""Seconds between two greetings of those found that are not known as peers."""

RETRY_S = 30.0
"""Seconds after which multicast is tried again on a machine that has none, and addresses are looked
at again."""

_LOOK_UP_MS = 3000
_JITTER = 0.25
_TAG = b"swarm"


@dataclass(frozen=True, slots=True)
class LanSelf:
    """What this node tells the local network."""

    node_id: NodeId
    tags: Sequence[str]
    """Fingerprints of the swarm tokens, its own first; services with none of them are strangers."""
    heartbeat_port: int


class LanScout(Service):
    """Announces this node by multicast DNS, and greets those it hears of.

    A machine without multicast is said once, and tried again every 30 s.
    """

    name = "lan"

    def __init__(
        self,
        describe: Callable[[], LanSelf],
        find: Callable[[], Awaitable[tuple[str, ...]]],
        *,
        greeter: Greeter,
        clock: Clock,
    ) -> None:
        """Wire it up.

        Args:
            describe: This node; asked once its ports are bound.
            find: Finds this machine's addresses; multicast uses the interfaces of the IPv4 ones.
            greeter: Greets whom it finds.
            clock: Waits.
        """
        super().__init__()
        self._describe = describe
        self._find = find
        self._greeter = greeter
        self._clock = clock
        self._random = random.Random()
        self._found: dict[str, tuple[Endpoint, ...]] = {}
        self._heard: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)
        self._has_complained = False

    @property
    def num_found(self) -> int:
        """Services of this swarm heard of now, this node left out."""
        return len(self._found)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Nothing to acquire: multicast comes and goes with the network."""

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._scout(), self._greet_again())

    async def _greet_again(self) -> None:
        while True:
            await self._clock.sleep(GREET_S * self._random.uniform(1 - _JITTER, 1 + _JITTER))
            self._greeter.greet([place for places in self._found.values() for place in places])

    async def _scout(self) -> None:
        while True:
            hosts = await self._find()
            try:
                async with AsyncExitStack() as stack:
                    zeroconf = await self._appear(hosts, stack)
                    await self._watch(zeroconf, hosts)
            except (OSError, ZeroconfError) as error:
                self._complain(error)
                await self._clock.sleep(RETRY_S)

    async def _appear(self, hosts: tuple[str, ...], stack: AsyncExitStack) -> AsyncZeroconf:
        """Announce this node and begin to listen, until the stack is left."""
        me = self._describe()
        interfaces = [host for host in hosts if is_address(host) and ":" not in host]
        if not interfaces:
            raise OSError("no IPv4 address")
        zeroconf = AsyncZeroconf(interfaces=interfaces, ip_version=IPVersion.V4Only)
        stack.push_async_callback(zeroconf.async_close)
        browser = AsyncServiceBrowser(zeroconf.zeroconf, KIND, handlers=[self._hear])
        stack.push_async_callback(browser.async_cancel)
        await zeroconf.async_register_service(_own_service(me, hosts), cooperating_responders=True)
        stack.callback(self._found.clear)
        return zeroconf

    async def _watch(self, zeroconf: AsyncZeroconf, hosts: tuple[str, ...]) -> None:
        """Look up what is heard; returns once this machine is elsewhere."""
        while (await self._find() or hosts) == hosts:
            try:
                async with asyncio.timeout(RETRY_S):
                    name = await self._heard.get()
            except TimeoutError:
                continue
            if places := await self._look_up(zeroconf, name):
                self._found[name] = places
                self._greeter.greet(places)

    def _hear(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Take the library's word that a service came, changed or went."""
        if state_change is ServiceStateChange.Removed:
            self._found.pop(name, None)
        elif not self._heard.full():
            self._heard.put_nowait(name)

    async def _look_up(self, zeroconf: AsyncZeroconf, name: str) -> tuple[Endpoint, ...]:
        """Where a service of this swarm is greeted; nowhere if it is none, or this node itself."""
        me = self._describe()
        if name == _service_name(me.node_id) or len(self._found) >= MAX_FOUND:
            return ()
        try:
            info = AsyncServiceInfo(KIND, name)
            if not await info.async_request(zeroconf.zeroconf, _LOOK_UP_MS):
                return ()
        except BadTypeInNameException:
            return ()
        tag = info.properties.get(_TAG) or b""
        if tag.decode("ascii", "replace") not in me.tags or not info.port:
            return ()
        hosts = [h for h in info.parsed_addresses(IPVersion.All) if _is_of_a_machine(h)]
        return tuple(Endpoint(host, info.port) for host in hosts[:MAX_ADDRESSES])

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            logger.info("nobody can be looked for on the local network: %s", error)


def _own_service(me: LanSelf, hosts: Iterable[str]) -> AsyncServiceInfo:
    return AsyncServiceInfo(
        KIND,
        _service_name(me.node_id),
        port=me.heartbeat_port,
        addresses=[ipaddress.ip_address(host).packed for host in hosts if is_address(host)],
        properties={_TAG: me.tags[0]},
        server=f"{me.node_id.hex()}.local.",
    )


def _service_name(node_id: NodeId) -> str:
    return f"{node_id.hex()}.{KIND}"


def _is_of_a_machine(host: str) -> bool:
    """Whether it may be a peer's address: no multicast, broadcast, loopback or scope."""
    if not is_address(host):
        return False
    address = ipaddress.ip_address(host)
    is_special = address.is_multicast or address.is_unspecified or address.is_link_local
    return not is_special and host != "255.255.255.255"
