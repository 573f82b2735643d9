"""Time as an input: intervals from a monotonic clock, expiries from the wall clock.

Refuses to know what the time is used for; `neuroswarm.testing.FakeClock` is the scripted one.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What a part asks for the time, and how it waits."""

    def monotonic(self) -> float:
        """Seconds since some fixed instant; never goes back. For durations and deadlines."""
        ...

    def boottime(self) -> float:
        """Seconds since some fixed instant, also those in which the machine was suspended."""
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

    def boottime(self) -> float:
        """Seconds of CLOCK_BOOTTIME; where there is none, of `time.time`.

        The latter also jumps when the clock is put right: then a suspension is seen that was none,
        which costs one interval of listening.
        """
        return time.time() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def wall(self) -> float:
        """Seconds of `time.time`."""
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(duration_s)


class LivedClock:
    """A clock that stands still while this process does not run.

    Suspended with its machine, stopped by a signal, or out of memory and swapping: what passes
    meanwhile is nobody's silence and no round's deadline. Whoever uses this clock judges by the
    time in which this process could have heard something.

    Some task must ask for the time more often than `longest_pause_s` as long as the process runs;
    `num_gaps`, `missed_s` and `woke_at` tell what it noticed. Belongs to the event loop's thread.
    """

    def __init__(self, clock: Clock, *, longest_pause_s: float) -> None:
        """Start to live.

        Args:
            clock: The real one.
            longest_pause_s: Longer without being asked is a gap, seconds, > 0.
        """
        self._clock = clock
        self._longest_pause_s = longest_pause_s
        self._seen_at, self._seen_boot = clock.monotonic(), clock.boottime()
        self._left_out_s = 0.0
        self.num_gaps = 0
        """Gaps noticed so far."""
        self.missed_s = 0.0
        """Length of the newest gap, seconds."""
        self.woke_at = -math.inf
        """This clock's time at the end of the newest gap."""

    def monotonic(self) -> float:
        """Seconds of the real monotonic clock without the gaps."""
        now, boot = self._clock.monotonic(), self._clock.boottime()
        passed_s = now - self._seen_at
        missed_s = max(passed_s, boot - self._seen_boot)
        self._seen_at, self._seen_boot = now, boot
        if missed_s > self._longest_pause_s:
            self._left_out_s += passed_s
            self.num_gaps += 1
            self.missed_s, self.woke_at = missed_s, now - self._left_out_s
        return now - self._left_out_s

    def boottime(self) -> float:
        """As the real one: with all gaps."""
        return self._clock.boottime()

    def wall(self) -> float:
        """As the real one."""
        return self._clock.wall()

    async def sleep(self, duration_s: float) -> None:
        """Sleep on the real clock."""
        await self._clock.sleep(duration_s)
