"""What the caps still allow."""

from __future__ import annotations

import pytest

from neuroswarm.metering.allowance import Allowance, Caps
from neuroswarm.metering.tally import Tally

CAPS = Caps(day_bytes=1000, month_bytes=10_000, reserve=0.1)


def used(day: int, month: int) -> Tally:
    tally = Tally()
    tally.day.add(day // 2, day - day // 2)
    tally.month.add(0, month)
    return tally


@pytest.mark.parametrize(
    ("day", "month", "allowance", "room"),
    [
        (0, 0, Allowance.OPEN, 900),
        (899, 899, Allowance.OPEN, 1),
        (900, 900, Allowance.SPARING, 0),
        (979, 979, Allowance.SPARING, 0),
        (980, 980, Allowance.SILENT, 0),
        (10**9, 10**9, Allowance.SILENT, 0),
        (0, 8_500, Allowance.OPEN, 500),
        (0, 9_000, Allowance.SPARING, 0),
        (0, 9_800, Allowance.SILENT, 0),
    ],
)
def test_the_tighter_cap_decides(day: int, month: int, allowance: Allowance, room: int):
    assert CAPS.judge(used(day, month)) is allowance
    assert CAPS.room(used(day, month)) == room


def test_without_caps_everything_is_allowed():
    caps = Caps()
    assert caps.judge(used(10**15, 10**15)) is Allowance.OPEN
    assert caps.room(used(10**15, 10**15)) is None
    assert not caps.are_set
    assert caps.smallest is None
    assert CAPS.smallest == 1000
