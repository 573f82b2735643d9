"""Whatever a clock does, no day opens twice, unless it was wrong by more than two days."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.metering.calendar import EARLIEST_S, MAX_AHEAD_S, Calendar
from neuroswarm.metering.tally import Tally
from neuroswarm.testing.fake_clock import FakeClock

BEGIN_S = 1_796_000_000.0  # late in 2026
HOUR_S = 3600.0

Happening = tuple[str, float]
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["run", "sleep", "forward", "back", "unset", "restart"]),
        st.floats(0.0, 47.0),
    ),
    max_size=40,
)


def happen(clock: FakeClock, what: str, hours: float) -> None:
    passed_s = hours * HOUR_S
    match what:
        case "run":
            asyncio.run(clock.advance(passed_s))
        case "sleep":
            clock.suspend(passed_s)
        case "forward":
            clock.set_wall(clock.wall() + passed_s)
        case "back":
            clock.set_wall(clock.wall() - passed_s)
        case "unset":
            clock.set_wall(passed_s)


@settings(max_examples=200, deadline=None)
@given(HAPPENINGS)
def test_no_day_is_opened_twice(happenings: list[Happening]):
    clock = FakeClock(wall_s=BEGIN_S)
    calendar, tally = Calendar(clock), Tally()
    opened: list[str] = []
    latest, furthest = calendar.now(), calendar.now()
    for what, hours in happenings:
        happen(clock, what, hours)
        if what == "restart":
            calendar = Calendar(clock)
            calendar.resume(latest)
        latest = calendar.now()
        if furthest - latest > MAX_AHEAD_S:
            return  # the clock had been wrong by more than that
        furthest = max(furthest, latest)
        if tally.turn(calendar.day(latest), calendar.month(latest)):
            opened.append(tally.day.label)
    assert opened == sorted(set(opened))


@settings(max_examples=200, deadline=None)
@given(HAPPENINGS, st.booleans())
def test_a_day_always_turns_within_three_days_of_life(happenings: list[Happening], is_unset: bool):
    clock = FakeClock(wall_s=BEGIN_S)
    calendar = Calendar(clock)
    for what, hours in happenings:
        happen(clock, what, hours)
        calendar.now()
    if is_unset:
        clock.set_wall(EARLIEST_S / 2)
    tally = Tally()
    now = calendar.now()
    tally.turn(calendar.day(now), calendar.month(now))
    turned = 0
    for _ in range(3 * 24 + 1):
        asyncio.run(clock.advance(HOUR_S))
        now = calendar.now()
        turned += tally.turn(calendar.day(now), calendar.month(now))
    assert turned
