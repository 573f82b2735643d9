"""n bytes take n / limit seconds, and short statements never wait."""

from __future__ import annotations

import asyncio

import pytest

from neuroswarm.metering.upload_limit import SMALL_BYTES, UploadLimit
from neuroswarm.testing.fake_clock import FakeClock

LIMIT = 100_000.0
CHUNK = 50_000


async def send(limit: UploadLimit, clock: FakeClock, sizes: list[int], gone: list[float]) -> None:
    for size in sizes:
        await limit.take(size)
        gone.append(clock.monotonic())


async def test_a_long_upload_takes_its_bytes_over_the_limit():
    clock = FakeClock(monotonic_s=0)
    limit, gone = UploadLimit(LIMIT, clock), list[float]()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send(limit, clock, [CHUNK] * 100, gone))
        await clock.advance(100)
    assert gone == pytest.approx([CHUNK / LIMIT * k for k in range(100)])
    assert limit.num_bytes == 100 * CHUNK
    assert limit.held_up_s == pytest.approx(gone[-1])


async def test_several_uploads_share_the_limit_evenly():
    clock = FakeClock(monotonic_s=0)
    limit, gone = UploadLimit(LIMIT, clock), [list[float]() for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for times in gone:
            tasks.create_task(send(limit, clock, [CHUNK] * 10, times))
        await clock.advance(100)
    last = 39 * CHUNK / LIMIT
    assert max(map(max, gone)) == pytest.approx(last)
    assert all(times[-1] >= last - 8 * CHUNK / LIMIT for times in gone)


async def test_short_statements_go_at_once_and_the_long_ones_pay_for_them():
    clock = FakeClock(monotonic_s=0)
    limit, gone = UploadLimit(LIMIT, clock), list[float]()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send(limit, clock, [CHUNK, CHUNK], gone))
        await clock.advance(0.1)
        for _ in range(10):
            assert await limit.take(SMALL_BYTES) == 0.0
        assert clock.monotonic() == pytest.approx(0.1)
        await clock.advance(100)
    assert gone == pytest.approx([0.0, (CHUNK + 10 * SMALL_BYTES) / LIMIT])


async def test_quiet_times_are_not_saved_up():
    clock = FakeClock(monotonic_s=0)
    limit, gone = UploadLimit(LIMIT, clock), list[float]()
    await clock.advance(3600)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send(limit, clock, [CHUNK] * 3, gone))
        await clock.advance(100)
    assert gone[-1] - 3600 == pytest.approx(2 * CHUNK / LIMIT)


async def test_who_gives_up_takes_nothing_and_the_next_goes_on():
    clock = FakeClock(monotonic_s=0)
    limit, gone = UploadLimit(LIMIT, clock), list[float]()
    await limit.take(CHUNK)
    async with asyncio.TaskGroup() as tasks:
        given_up = tasks.create_task(limit.take(1000 * CHUNK))
        tasks.create_task(send(limit, clock, [CHUNK], gone))
        await clock.advance(0.1)
        given_up.cancel()
        await clock.advance(10)
    assert gone == pytest.approx([CHUNK / LIMIT])
    assert limit.num_bytes == 2 * CHUNK


async def test_without_a_limit_nothing_waits_and_all_is_counted():
    clock = FakeClock()
    limit = UploadLimit(None, clock)
    assert [await limit.take(10**9) for _ in range(3)] == [0.0] * 3
    assert (limit.num_bytes, limit.backlog_s) == (3 * 10**9, 0.0)
