"""Where this machine is, looked at again and again: it may get another address at any time.

Refuses to know how an address is found, and who is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.discovery.announce import LOOPBACK
from neuroswarm.service import Service

logger = logging.getLogger(__name__)


class Whereabouts(Service):
    """The hosts that peers are told; `on_change` is called when they have become others.

    A machine without any route keeps its last address: it is told to nobody anyway, and mostly
    comes back.
    """

    name = "whereabouts"

    def __init__(
        self,
        find: Callable[[], Awaitable[tuple[str, ...]]],
        *,
        clock: Clock,
        interval_s: float,
        on_change: Callable[[], None],
    ) -> None:
        """Wire it up.

        Args:
            find: Finds the hosts of now, best first; none where nobody could reach this machine.
            clock: Waits.
            interval_s: Seconds between two looks, > 0.
            on_change: Tells the others.
        """
        super().__init__()
        self._find = find
        self._clock = clock
        self._interval_s = interval_s
        self._on_change = on_change
        self._hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """At least one, best first: loopback if this machine has only itself to talk to."""
        return self._hosts or (LOOPBACK,)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._hosts = await self._find()

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._watch(),)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            found = await self._find()
            if not found or found == self._hosts:
                continue
            before, self._hosts = self.hosts, found
            logger.info(
                "this machine is at %s now, not at %s: telling the peers",
                ", ".join(found),
                ", ".join(before),
            )
            self._on_change()
