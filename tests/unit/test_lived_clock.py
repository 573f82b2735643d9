"""The clock that stands still while its process does not run."""

from __future__ import annotations

from neuroswarm.clock import LivedClock
from neuroswarm.testing.fake_clock import FakeClock

PAUSE_S = 7.5


async def test_time_that_is_watched_passes_as_it_does():
    real = FakeClock(monotonic_s=100.0)
    lived = LivedClock(real, longest_pause_s=PAUSE_S)
    for _ in range(10):
        await real.advance(PAUSE_S)
        lived.monotonic()
    assert lived.monotonic() == 100.0 + 10 * PAUSE_S
    assert lived.num_gaps == 0


def test_a_stopped_process_does_not_live_through_the_gap():
    real = FakeClock(monotonic_s=100.0)
    lived = LivedClock(real, longest_pause_s=PAUSE_S)
    real.stop(3600.0)
    assert lived.monotonic() == 100.0
    assert (lived.num_gaps, lived.missed_s, lived.woke_at) == (1, 3600.0, 100.0)
    real.stop(2.0)
    assert lived.monotonic() == 102.0
    assert lived.num_gaps == 1


def test_a_suspended_machine_is_noticed_although_its_monotonic_clock_stood():
    real = FakeClock(monotonic_s=100.0)
    lived = LivedClock(real, longest_pause_s=PAUSE_S)
    real.suspend(600.0)
    assert lived.monotonic() == 100.0
    assert (lived.num_gaps, lived.missed_s) == (1, 600.0)


def test_a_wall_clock_put_right_is_no_gap():
    real = FakeClock()
    lived = LivedClock(real, longest_pause_s=PAUSE_S)
    real.set_wall(0.0)
    lived.monotonic()
    real.set_wall(1e9)
    lived.monotonic()
    assert lived.num_gaps == 0
    assert lived.wall() == 1e9
