"""Days and months turn over sleep, restarts and corrections, and none of them turns twice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from neuroswarm.metering.calendar import LATEST_S, Calendar
from neuroswarm.testing.fake_clock import FakeClock

HOUR_S, DAY_S = 3600.0, 86_400.0


def instant(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def begin(text: str, **settings: int) -> tuple[FakeClock, Calendar]:
    clock = FakeClock(wall_s=instant(text))
    return clock, Calendar(clock, **settings)


async def test_days_turn_at_midnight_of_utc():
    clock, calendar = begin("2026-11-30 23:59:50")
    assert calendar.day(calendar.now()) == "2026-11-30"
    assert calendar.next_day(calendar.now()) == instant("2026-12-01 00:00")
    await clock.advance(20)
    assert calendar.day(calendar.now()) == "2026-12-01"


def test_days_turn_while_the_machine_sleeps():
    clock, calendar = begin("2026-11-30 12:00")
    clock.suspend(3 * DAY_S)
    assert calendar.day(calendar.now()) == "2026-12-03"


def test_a_clock_put_forward_turns_the_day():
    clock, calendar = begin("2026-11-30 12:00")
    clock.set_wall(instant("2026-12-24 01:00"))
    assert calendar.day(calendar.now()) == "2026-12-24"


async def test_a_clock_put_back_a_little_makes_time_stand_still_and_turns_no_day_twice():
    clock, calendar = begin("2026-12-01 00:30")
    clock.set_wall(instant("2026-11-30 23:00"))
    assert calendar.now() == instant("2026-12-01 00:30")
    await clock.advance(HOUR_S)
    assert calendar.now() == instant("2026-12-01 00:30")
    await clock.advance(DAY_S)
    assert calendar.now() == instant("2026-12-02 00:00")


async def test_a_clock_that_was_far_ahead_goes_back_and_days_turn_from_there():
    clock, calendar = begin("2099-01-01")
    clock.set_wall(instant("2026-11-30 12:00"))
    assert calendar.day(calendar.now()) == "2026-11-30"
    await clock.advance(DAY_S)
    assert calendar.day(calendar.now()) == "2026-12-01"


async def test_a_clock_that_was_never_set_goes_on_from_what_was_kept():
    clock, calendar = begin("1970-01-01 00:01")
    calendar.resume(instant("2026-11-30 23:30"))
    assert calendar.day(calendar.now()) == "2026-11-30"
    await clock.advance(HOUR_S)
    assert calendar.day(calendar.now()) == "2026-12-01"
    clock.suspend(2 * DAY_S)
    assert calendar.day(calendar.now()) == "2026-12-03"
    clock.set_wall(instant("2027-01-05"))  # the network has told the time
    assert calendar.day(calendar.now()) == "2027-01-05"


def test_what_was_kept_is_passed_by_the_time_off():
    _, calendar = begin("2026-12-05")
    calendar.resume(instant("2026-11-30"))
    assert calendar.day(calendar.now()) == "2026-12-05"


def test_what_was_kept_far_ahead_is_no_truth():
    _, calendar = begin("2026-12-05")
    calendar.resume(instant("2099-11-30"))
    assert calendar.day(calendar.now()) == "2026-12-05"


@pytest.mark.parametrize(
    ("date", "begins", "ends"),
    [
        ("2026-11-30", "2026-11-15", "2026-12-15"),
        ("2026-11-14", "2026-10-15", "2026-11-15"),
        ("2027-01-01", "2026-12-15", "2027-01-15"),
        ("2026-12-15", "2026-12-15", "2027-01-15"),
    ],
)
def test_months_begin_on_the_day_of_the_data_plan(date: str, begins: str, ends: str):
    _, calendar = begin(date, month_starts_on=15)
    assert calendar.month(calendar.now()) == begins
    assert calendar.next_month(calendar.now()) == instant(ends)


@pytest.mark.parametrize("wall_s", [-1e12, 0.0, 1e300])
def test_no_clock_is_too_wrong(wall_s: float):
    clock = FakeClock(wall_s=wall_s)
    calendar = Calendar(clock)
    calendar.resume(1e30)
    now = calendar.now()
    assert 0 <= now <= LATEST_S
    assert calendar.day(now) <= calendar.day(calendar.next_day(now))
    assert calendar.month(now) <= calendar.day(calendar.next_month(now))
