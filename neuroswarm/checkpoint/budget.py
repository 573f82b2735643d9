"""How many bytes may be written: so many a day, spread over it.

Pure: the time is an argument, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math

DAY_S = 86400.0
BURST_SHARE = 0.25
"""Part of a day's bytes that may be written at once; the rest comes back evenly over the day, so
that no 24 hours see more than the day's bytes."""


class ByteBudget:
    """A store of bytes that fills up over the day.

    Args:
        daily_bytes: At least 1. None: no limit.
        now: Where the clock stands; the store is full.
    """

    def __init__(self, daily_bytes: int | None, now: float) -> None:
        self._capacity = math.inf if daily_bytes is None else BURST_SHARE * daily_bytes
        self._rate = 0.0 if daily_bytes is None else (1 - BURST_SHARE) * daily_bytes / DAY_S
        self._left = self._capacity
        self._as_of = now

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self._capacity)

    @property
    def capacity(self) -> float:
        """Bytes that may be left at most."""
        return self._capacity

    def left(self, now: float) -> float:
        """Bytes that may be written now; below 0 after what had to be written."""
        passed_s = max(0.0, now - self._as_of)
        return min(self._capacity, self._left + self._rate * passed_s)

    def spend(self, num_bytes: float, now: float) -> None:
        """Note what was written, also what did not fit."""
        self._left = self.left(now) - num_bytes
        self._as_of = now
