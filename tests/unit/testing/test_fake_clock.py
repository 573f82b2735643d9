"""The fake clock moves by hand and wakes sleepers in order."""

from __future__ import annotations

import asyncio

import pytest

from neuroswarm.clock import Clock
from neuroswarm.testing.fake_clock import FakeClock


def test_both_clocks_stand_still_and_differ():
    clock: Clock = FakeClock(monotonic_s=10, wall_s=500)
    assert (clock.monotonic(), clock.wall()) == (10, 500)
    assert (clock.monotonic(), clock.wall()) == (10, 500)


async def test_advance_moves_both_clocks():
    clock = FakeClock(monotonic_s=10, wall_s=500)
    await clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (12.5, 502.5)


def test_wall_clock_can_be_wrong():
    clock = FakeClock(monotonic_s=10)
    clock.set_wall(7)
    assert (clock.monotonic(), clock.wall()) == (10, 7)


async def test_sleepers_wake_in_order_at_their_own_time():
    clock, woken = FakeClock(monotonic_s=0), []

    async def sleep(duration_s: float) -> None:
        await clock.sleep(duration_s)
        woken.append((duration_s, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for duration_s in (3, 1, 2, 1):
            tasks.create_task(sleep(duration_s))
        await clock.advance(0)
        assert clock.num_sleepers == 4
        await clock.advance(0.5)
        assert woken == []
        await clock.advance(10)
        assert woken == [(1, 1), (1, 1), (2, 2), (3, 3)]
    assert (clock.monotonic(), clock.num_sleepers) == (10.5, 0)


async def test_an_hour_of_a_periodic_loop_runs_at_once():
    clock, ticks = FakeClock(monotonic_s=0), []

    async def tick() -> None:
        while True:
            await clock.sleep(5)
            ticks.append(clock.monotonic())

    task = asyncio.ensure_future(tick())
    await clock.advance(3600)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ticks == [5.0 * i for i in range(1, 721)]


async def test_cancelled_sleeper_is_forgotten():
    clock = FakeClock()
    task = asyncio.ensure_future(clock.sleep(1))
    await clock.advance(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.num_sleepers == 0
    await clock.advance(2)


async def test_sleep_of_nothing_returns_without_advance():
    await FakeClock().sleep(0)
