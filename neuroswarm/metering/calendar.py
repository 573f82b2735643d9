"""Which day and month of UTC it is, for a node whose clock may be wrong, put right, or stand still.

A clock that jumps back and forth must not open a new period each time, and one that never was set
must not keep a period open for ever. Refuses to know what is counted by day and month.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from neuroswarm.clock import Clock

EARLIEST_S = 1_577_836_800.0
"""1 January 2020: a clock that is before it was never set, as on boards without a battery."""

LATEST_S = 253_370_764_800.0
"""Year 9999, the last that a date can have."""

MAX_AHEAD_S = 2 * 86_400.0
"""A clock that goes back by more than this was wrong before; for less, time stands still."""


class Calendar:
    """Time that goes on with the machine's clock where it can, and never opens a period twice.

    - It takes the wall clock as long as that goes forward, over sleep and over corrections.
    - If the wall clock goes back by at most two days, it stands still until that has caught up.
    - If it goes back further, to a time that may be true, it goes back too.
    - While the wall clock was never set, it goes on with the time lived since, sleep included.
    """

    def __init__(self, clock: Clock, *, month_starts_on: int = 1) -> None:
        """Start at the clock's time.

        Args:
            clock: The machine's.
            month_starts_on: First day of a month of the data plan, 1 to 28.
        """
        self._clock = clock
        self._month_starts_on = month_starts_on
        self._boot = clock.boottime()
        self._now = _bounded(clock.wall())

    def resume(self, kept: float) -> None:
        """Go on from an instant that an earlier life has reached, unless it is later by now."""
        self._now = self._choose(_bounded(kept), _bounded(kept))

    def now(self) -> float:
        """Seconds since 1970."""
        boot = self._clock.boottime()
        lived_s, self._boot = max(0.0, boot - self._boot), boot
        self._now = self._choose(self._now, _bounded(self._now + lived_s))
        return self._now

    def _choose(self, before: float, lived: float) -> float:
        wall = _bounded(self._clock.wall())
        if wall < EARLIEST_S:
            return max(wall, lived)
        return wall if before - wall > MAX_AHEAD_S else max(wall, before)

    def day(self, instant: float) -> str:
        """The day of an instant, as `2026-11-30`; later days are greater texts."""
        return _date(instant).strftime("%Y-%m-%d")

    def month(self, instant: float) -> str:
        """The month of the data plan, by the day on which it begins."""
        date = _date(instant)
        if date.day < self._month_starts_on:
            date = date.replace(day=1) - timedelta(days=1)
        return date.replace(day=self._month_starts_on).strftime("%Y-%m-%d")

    def next_day(self, instant: float) -> float:
        """When the day ends."""
        date = _date(instant).replace(hour=0, minute=0, second=0, microsecond=0)
        return (date + timedelta(days=1)).timestamp()

    def next_month(self, instant: float) -> float:
        """When the month of the data plan ends."""
        first = datetime.strptime(self.month(instant), "%Y-%m-%d").replace(tzinfo=UTC)
        later = (first.replace(day=1) + timedelta(days=32)).replace(day=self._month_starts_on)
        return later.timestamp()


def _bounded(instant: float) -> float:
    return min(max(0.0, instant), LATEST_S)


def _date(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, tz=UTC)
