"""An event loop on real sockets whose time jumps on whenever nothing arrives.

So a test of deadlines and expiries takes as long as its computing takes, and a loaded machine
changes nothing in it. Everything that sends must be on this loop, and on this machine's loopback.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

ARRIVAL_S = 0.001
"""Real seconds in which a datagram on loopback surely arrives, before time jumps."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s; timers fire in their order, once the sockets are silent."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_now

    def jump(self, duration_s: float) -> None:
        """Let that much time pass."""
        self._virtual_now += duration_s


class LoopClock:
    """A `clock.Clock` that shows the time of the running loop, and a wall clock that follows it."""

    def __init__(self, *, starts_at: float = 1.7e9) -> None:
        """Take the wall clock's time at the loop's zero, seconds since 1970."""
        self._starts_at = starts_at

    def monotonic(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        """The same: nothing is ever suspended."""
        return self.monotonic()

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._starts_at + self.monotonic()

    async def sleep(self, duration_s: float) -> None:
        """Sleep on the loop."""
        await asyncio.sleep(duration_s)


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, unused-ignore]
    """Waits a moment for what is under way, then lets time pass instead of waiting."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(min(timeout, ARRIVAL_S))
        if not events:
            self._loop.jump(timeout)
        return events
