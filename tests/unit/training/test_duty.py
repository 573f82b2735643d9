"""Work and rest of the thread that trains."""

from __future__ import annotations

import threading

import pytest

from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.training.compute import RESTED
from neuroswarm.training.duty import Duty


async def test_a_share_of_a_quarter_rests_three_times_as_long_as_it_works():
    clock = FakeClock()
    duty = Duty(0.25, clock)
    worked_s, rested_s = 0.0, 0.0
    moments = iter([2.0, 1.0, 4.0])

    while worked_s < 7.0:
        began = clock.monotonic()

        def step() -> str:
            clock._now += next(moments)
            return "stepped"

        if duty.step(step) is RESTED:
            clock._now += 0.5  # what the wait took
            rested_s += clock.monotonic() - began
        else:
            worked_s += clock.monotonic() - began
    while duty.step(lambda: "stepped") is RESTED:
        clock._now += 0.5
        rested_s += 0.5
    assert rested_s == pytest.approx(3 * worked_s)


def test_a_node_that_has_the_machine_to_itself_never_rests():
    duty = Duty(1.0, FakeClock())
    steps = iter(range(3))
    assert [duty.step(lambda: next(steps)) for _ in range(3)] == [0, 1, 2]


def test_a_resting_node_takes_no_step_until_it_may():
    duty, taken = Duty(1.0, FakeClock()), threading.Event()

    def run() -> None:
        while duty.step(taken.set) is RESTED:
            pass

    duty.rest()
    assert duty.step(taken.set) is RESTED
    thread = threading.Thread(target=run)
    thread.start()
    assert not taken.is_set()
    duty.work()
    thread.join(10)
    assert taken.is_set()


def test_a_rest_of_a_lone_node_at_the_end_of_its_round_is_no_work():
    duty = Duty(0.5, FakeClock())
    assert duty.step(lambda: RESTED) is RESTED
    assert duty.step(lambda: "stepped") == "stepped"
