"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools

_TURNS = 20
"""Turns of the event loop that tasks get to react to a wake-up before time moves on."""


class FakeClock:
    """`clock.Clock` whose time stands still until `advance`."""

    def __init__(self, *, monotonic_s: float = 1000.0, wall_s: float = 1_700_000_000.0) -> None:
        """Start at these times; they differ so that a test notices the wrong one."""
        self._now = monotonic_s
        self._wall_offset = wall_s - monotonic_s
        self._suspended_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @property
    def num_sleepers(self) -> int:
        """Tasks that wait in `sleep` now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def monotonic(self) -> float:
        """Seconds since a fixed instant."""
        return self._now

    def boottime(self) -> float:
        """Seconds since a fixed instant, with those of `suspend`."""
        return self._now + self._suspended_s

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._now + self._wall_offset

    def set_wall(self, wall_s: float) -> None:
        """Put the wall clock right or wrong; the monotonic one stays."""
        self._wall_offset = wall_s - self._now

    def suspend(self, duration_s: float) -> None:
        """Let the machine sleep: its monotonic clock stands still, the others go on."""
        self._suspended_s += duration_s
        self._wall_offset += duration_s

    def stop(self, duration_s: float) -> None:
        """Let the process stand still (SIGSTOP) while all clocks go on; sleepers wake later."""
        self._now += duration_s

    async def sleep(self, duration_s: float) -> None:
        """Return once the clock has been advanced by `duration_s`; at once for 0 or less."""
        if duration_s <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + duration_s, next(self._order), future))
        await future

    async def advance(self, duration_s: float) -> None:
        """Move time on, waking sleepers one instant after the other.

        Tasks get 20 turns of the event loop at each instant; what waits for real sockets or
        threads is not waited for.
        """
        end = self._now + duration_s
        await _give_turns()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now = max(self._now, self._sleepers[0][0])
            while self._sleepers and self._sleepers[0][0] <= self._now:
                _, _, future = heapq.heappop(self._sleepers)
                if not future.done():
                    future.set_result(None)
            await _give_turns()
        self._now = end


async def _give_turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
