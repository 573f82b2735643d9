"""When a loss counts as having stopped falling."""

from __future__ import annotations

import math
import random

import pytest

from neuroswarm.data.plateau import RoundLoss, has_plateaued


def plateaued(losses: list[float | None], *, window: int = 5, min_gain: float = 0.01) -> bool:
    return has_plateaued([RoundLoss(x, None) for x in losses], window=window, min_gain=min_gain)


def falling(count: int, share: float) -> list[float]:
    return [2.0 * (1 - share) ** k for k in range(count)]


def test_a_falling_loss_goes_on_and_a_level_one_has_plateaued():
    assert not plateaued(falling(10, 0.01))
    assert plateaued([2.0] * 10)
    assert plateaued([*falling(10, 0.05), *[1.2] * 10])


def test_a_rising_loss_has_plateaued_also_where_no_gain_is_asked_for():
    rising = [1.0 + 0.01 * k for k in range(10)]
    assert plateaued(rising, min_gain=0)
    assert not plateaued(rising[::-1], min_gain=0)


def test_nothing_is_said_before_there_are_two_windows():
    assert not plateaued([2.0] * 9)
    assert plateaued([2.0] * 10)


def test_only_the_newest_two_windows_count():
    assert plateaued([*falling(50, 0.05), *[0.1] * 10])
    assert not plateaued([*[2.0] * 50, *falling(10, 0.05)])


def test_a_lucky_round_or_noise_decides_nothing():
    lucky = falling(10, 0.02)
    lucky[2] = 0.5
    assert not plateaued(lucky)
    lucky[7] = 9.0
    assert not plateaued(lucky)
    draw = random.Random(3)
    noisy = [x + draw.uniform(-0.02, 0.02) for x in falling(40, 0.02)]
    assert not any(plateaued(noisy[:n], window=10) for n in range(41))
    level = [1.0 + draw.uniform(-0.005, 0.005) for _ in range(40)]
    assert plateaued(level, window=10)


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_where_a_held_out_loss_is_missing_the_training_loss_decides(missing: float | None):
    held_out = [*falling(9, 0.05), missing]
    level = [RoundLoss(h, 1.0) for h in held_out]
    going_on = [RoundLoss(h, t) for h, t in zip(held_out, falling(10, 0.05), strict=True)]
    neither = [RoundLoss(h, None) for h in held_out]
    assert has_plateaued(level, window=5, min_gain=0.01)
    assert not has_plateaued(going_on, window=5, min_gain=0.01)
    assert not has_plateaued(neither, window=5, min_gain=0.01)
