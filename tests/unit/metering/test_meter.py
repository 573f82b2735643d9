"""The meter counts, keeps, turns with the calendar and says what is allowed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from neuroswarm.checkpoint.small_file import SmallFile
from neuroswarm.config.metering import MeteringConfig
from neuroswarm.errors import CheckpointError
from neuroswarm.metering.allowance import Allowance
from neuroswarm.metering.framing import Moved
from neuroswarm.metering.meter import LEAST_UNSEEN_BYTES, LOOK_S, SAVE_S, Meter
from neuroswarm.service import State
from neuroswarm.testing.fake_clock import FakeClock

MB = 1_000_000
DAY_S = 86_400.0
CAPPED = MeteringConfig(data_caps=("100MB/day", "1GB/month"))
UNSEEN = 100 * MB // 200
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()


@dataclass
class Link:
    """What a source has moved."""

    moved: Moved = field(default_factory=Moved)

    def move(self, sent: int, received: int = 0) -> None:
        self.moved += Moved(sent, received)


@dataclass
class Lives:
    """One node's meter in one life after the other, over one file."""

    path: Path
    clock: FakeClock = field(default_factory=lambda: FakeClock(wall_s=NOON))
    cfg: MeteringConfig = CAPPED
    changes: list[tuple[Allowance, Allowance]] = field(default_factory=list)

    def begin(self) -> tuple[Meter, Link]:
        meter = Meter(self.cfg, SmallFile(self.path / "traffic.json", 4096), self.clock)
        link = Link()
        meter.watch(lambda: link.moved)
        meter.on_change = lambda before, now: self.changes.append((before, now))
        return meter, link


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


async def written(meter: Meter, clock: FakeClock, is_done: Callable[[], bool]) -> None:
    """Let time pass until something that a worker thread writes is there."""
    for _ in range(10_000):
        if is_done():
            return
        await clock.advance(LOOK_S / 100)
    raise AssertionError(f"not written: {meter}")


async def test_it_counts_both_directions_and_goes_on_counting_after_a_restart(lives: Lives):
    meter, link = lives.begin()
    async with meter:
        link.move(3 * MB, 4 * MB)
    meter, link = lives.begin()
    async with meter:
        link.move(1 * MB)
        meter.look()
        assert (meter.tally.day.sent, meter.tally.day.received) == (4 * MB, 4 * MB)
        assert meter.tally.month.total == 8 * MB


async def test_a_killed_node_counts_what_it_may_have_moved_unseen(lives: Lives):
    meter, _ = lives.begin()
    meter.look()
    await meter._save(unseen_bytes=meter._unseen_bytes)  # and then nothing more: kill -9
    meter, _ = lives.begin()
    async with meter:
        assert meter.tally.day.total == UNSEEN
    meter, _ = lives.begin()
    async with meter:  # the last life ended well
        assert meter.tally.day.total == UNSEEN


async def test_it_writes_before_more_is_moved_than_it_has_said(lives: Lives):
    file = SmallFile(lives.path / "traffic.json", 4096)
    meter, link = lives.begin()
    async with meter:
        before = file.read()
        link.move(UNSEEN // 2 + 1)
        await written(meter, lives.clock, lambda: file.read() != before)


async def test_without_caps_it_writes_once_in_a_while(lives: Lives):
    lives.cfg = MeteringConfig()
    file = SmallFile(lives.path / "traffic.json", 4096)
    meter, link = lives.begin()
    async with meter:
        before = file.read()
        link.move(500 * MB)
        await lives.clock.advance(SAVE_S - 10 * LOOK_S)
        assert file.read() == before
        await lives.clock.advance(10 * LOOK_S)
        await written(meter, lives.clock, lambda: file.read() != before)


async def test_near_the_cap_it_is_sparing_and_beyond_silent_until_the_day_turns(lives: Lives):
    meter, link = lives.begin()
    async with meter:
        assert meter.may_spend(90 * MB)
        assert not meter.may_spend(90 * MB + 1)
        link.move(50 * MB, 40 * MB)
        assert not meter.may_spend(1)
        assert meter.allowance is Allowance.SPARING
        assert not meter.is_silent
        link.move(8 * MB)
        meter.look()
        assert meter.is_silent
        lives.clock.suspend(DAY_S / 2 - 60)
        await lives.clock.advance(50)
        assert meter.is_silent
        await lives.clock.advance(20)
        assert meter.allowance is Allowance.OPEN
        assert not meter.is_silent
        assert meter.tally.day.total == 0
    names = [Allowance.OPEN, Allowance.SPARING, Allowance.SILENT, Allowance.OPEN]
    assert lives.changes == list(itertools.pairwise(names))


@pytest.mark.parametrize("how", ["slept", "jumped"])
async def test_the_day_turns_also_if_the_machine_slept_or_its_clock_jumped(lives: Lives, how: str):
    meter, link = lives.begin()
    async with meter:
        link.move(99 * MB)
        meter.look()
        assert meter.is_silent
        if how == "slept":
            lives.clock.suspend(DAY_S)
        else:
            lives.clock.set_wall(lives.clock.wall() + DAY_S)
        await lives.clock.advance(2 * LOOK_S)
        assert meter.allowance is Allowance.OPEN


async def test_a_clock_that_jumps_to_and_fro_opens_a_day_only_once(lives: Lives):
    meter, link = lives.begin()
    async with meter:
        for _ in range(5):
            link.move(99 * MB)
            meter.look()
            lives.clock.set_wall(lives.clock.wall() + DAY_S)
            meter.look()
            link.move(99 * MB)
            lives.clock.set_wall(lives.clock.wall() - DAY_S)
            meter.look()
            assert meter.is_silent


async def test_a_full_month_lasts_over_days(lives: Lives):
    lives.cfg = MeteringConfig(data_caps=("100MB/month",))
    meter, link = lives.begin()
    async with meter:
        link.move(99 * MB)
        meter.look()
        status = meter.get_status()
        assert status["open_again_at"] == "2026-12-01 00:00 UTC"
        lives.clock.suspend(DAY_S)
        link.move(99 * MB)
        meter.look()
        assert meter.get_status()["open_again_at"] == "2027-01-01 00:00 UTC"
        lives.clock.suspend(5 * DAY_S)
        meter.look()
        assert meter.is_silent
        lives.clock.suspend(31 * DAY_S)
        meter.look()
        assert meter.allowance is Allowance.OPEN


async def test_a_node_that_starts_with_a_full_day_is_silent_from_the_start(lives: Lives):
    meter, link = lives.begin()
    async with meter:
        link.move(99 * MB)
    lives.changes.clear()
    meter, _ = lives.begin()
    async with meter:
        assert meter.is_silent
        assert lives.changes == [(Allowance.OPEN, Allowance.SILENT)]


async def test_what_is_said_at_the_change_may_still_go_out(lives: Lives):
    meter, link = lives.begin()
    heard = []
    meter.on_change = lambda _before, now: heard.append((now, meter.is_silent))
    link.move(99 * MB)
    meter.look()
    lives.clock.suspend(DAY_S)
    meter.look()
    assert heard == [(Allowance.SILENT, False), (Allowance.OPEN, False)]


@pytest.mark.parametrize("data", [b"{", b"x" * 5000], ids=["damaged", "too large"])
async def test_a_damaged_count_is_said_and_begun_anew(
    lives: Lives, data: bytes, caplog: pytest.LogCaptureFixture
):
    (lives.path / "traffic.json").write_bytes(data)
    meter, _ = lives.begin()
    async with meter:
        assert meter.tally.day.total == 0
    assert "counting from 0" in caplog.text


@dataclass
class FullDisk:
    """A disk that takes nothing."""

    num_tries: int = 0

    def read(self) -> bytes | None:
        return None

    def write(self, data: bytes) -> None:
        self.num_tries += 1
        raise CheckpointError("cannot write traffic.json: no space left on device")


async def test_a_full_disk_stops_nothing_and_is_said_once(
    lives: Lives, caplog: pytest.LogCaptureFixture
):
    disk, link = FullDisk(), Link()
    meter = Meter(CAPPED, disk, lives.clock)
    meter.watch(lambda: link.moved)
    async with meter:
        link.move(10 * MB)
        await written(meter, lives.clock, lambda: disk.num_tries >= 2)
        assert meter.state is State.RUNNING
        assert meter.tally.day.total == 10 * MB
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1


async def test_what_never_asked_the_limit_is_paid_for_by_what_does(lives: Lives):
    lives.cfg = MeteringConfig(max_upload_bytes_per_s=100_000)
    meter, link = lives.begin()
    await meter.limit.take(1000)
    link.move(51_000)  # the message and 50 kB of datagrams and framing
    meter.look()
    assert meter.limit.num_bytes == 51_000
    assert meter.limit.backlog_s == pytest.approx(0.51)


async def test_status_says_it_all(lives: Lives):
    lives.cfg = MeteringConfig(data_caps=("100MB/day",), max_upload_bytes_per_s=200_000)
    meter, link = lives.begin()
    link.move(95 * MB, 1 * MB)
    meter.look()
    status = meter.get_status()
    assert status["allowance"] == "sparing"
    assert status["is_capped"]
    assert status["open_again_at"] == "2026-12-01 00:00 UTC"
    assert status["max_upload_bytes_per_s"] == 200_000
    assert status["day"] == {
        "begins": "2026-11-30",
        "ends": "2026-12-01 00:00 UTC",
        "sent_bytes": 95 * MB,
        "received_bytes": 1 * MB,
        "cap_bytes": 100 * MB,
    }


def test_small_caps_are_written_in_steps_that_a_disk_bears(lives: Lives):
    lives.cfg = MeteringConfig(data_caps=("1MB/day",))
    meter, _ = lives.begin()
    assert meter._unseen_bytes == LEAST_UNSEEN_BYTES
