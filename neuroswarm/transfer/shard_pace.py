"""How fast a donor gives of a shard, and whether that is so slow that another should go on.

Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

JUDGE_S = 10.0
"""A donor is judged by what it gives in so many seconds."""

FLOOR_BYTES_PER_S = 4096.0
"""Slower than this is as good as nothing, where anybody else can be asked: about what an honest
donor may give at the least (`upload_bounds.LEAST_TAKEN_BYTES`)."""

SLOW_FACTOR = 8.0
"""So many times slower than another is known to be: more than sharing a link among the shards that
come at once, and among those who are served at once, makes of equal donors."""


class ShardPace:
    """What one donor has given of one shard, and since when."""

    def __init__(self, now: float) -> None:
        self.began_at = now
        self.num_bytes = 0
        """Since it began."""
        self._judged_at, self._fresh = now, 0

    def add(self, num_bytes: int) -> None:
        """So many bytes came."""
        self.num_bytes += num_bytes
        self._fresh += num_bytes

    def take_rate(self, now: float) -> float | None:
        """Bytes per second since the last time this said any; None while it is too early."""
        elapsed_s = now - self._judged_at
        if elapsed_s < JUDGE_S:
            return None
        rate = self._fresh / elapsed_s
        self._judged_at, self._fresh = now, 0
        return rate


def is_next_to_nothing(rate: float) -> bool:
    """Whether a donor of so many bytes per second is below the floor."""
    return rate < FLOOR_BYTES_PER_S


def is_far_slower(rate: float, others: Iterable[float | None]) -> bool:
    """Whether a donor is to be left for one of the others.

    Args:
        rate: What it gives, bytes per second.
        others: The same of those that hold the shard, can be asked and were not found slow; None
            of one that was not tried.
    """
    rates = list(others)
    if is_next_to_nothing(rate) and any(r is None or not is_next_to_nothing(r) for r in rates):
        return True
    return any(r is not None and r > SLOW_FACTOR * rate for r in rates)
