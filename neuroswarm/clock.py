"""Time as an input: intervals from a monotonic clock, expiries from the wall clock.

Refuses to know what the time is used for; `neuroswarm.testing.FakeClock` is the scripted one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What a part asks for the time, and how it waits."""

    def monotonic(self) -> float:
        """Seconds since some fixed instant; never goes back. For durations and deadlines."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, as this machine believes. Only for things that leave the machine."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Return after `duration_s` seconds of this clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds of `time.time`."""
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(duration_s)
