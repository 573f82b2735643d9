"""A falling loss is told from one that only varies."""

from __future__ import annotations

import random

import pytest

from neuroswarm.rounds.loss_trend import KEPT_ROUNDS, MIN_ROUNDS, LossTrend, Trend


def trend_of(losses: list[float]) -> LossTrend:
    trend = LossTrend()
    for round_, loss in enumerate(losses, 1):
        trend.note(round_, loss)
    return trend


@pytest.mark.parametrize(
    ("losses", "trend"),
    [
        ([5.0, 4.0, 3.0, 2.0], None),
        ([5.0, 4.0, 3.0, 2.0, 1.0], Trend.FALLING),
        ([5.0, 4.2, 4.4, 3.9, 3.1, 3.3, 2.8, 2.7], Trend.FALLING),
        ([1.0, 2.0, 3.0, 4.0, 5.0], Trend.RISING),
        ([3.0] * 20, Trend.LEVEL),
        ([3.0, 2.0] * 10, Trend.LEVEL),
    ],
)
def test_trends(losses: list[float], trend: Trend | None):
    found = trend_of(losses)
    assert found.trend is trend
    assert (found.best, found.num_rounds) == (min(losses), len(losses))


def test_chance_is_seldom_taken_for_a_trend():
    draw = random.Random(4)
    seen = [trend_of([draw.random() for _ in range(20)]).trend for _ in range(400)]
    for wrong in (Trend.FALLING, Trend.RISING):
        assert seen.count(wrong) / len(seen) < 0.08, "1 of 20 each way, and what 400 draws add"


def test_a_slow_fall_in_noise_is_seen_over_all_kept_rounds():
    draw = random.Random(4)
    losses = [3.0 - 0.05 * k + draw.gauss(0, 0.2) for k in range(KEPT_ROUNDS)]
    assert trend_of(losses).trend is Trend.FALLING
    assert trend_of(losses[: MIN_ROUNDS - 1]).trend is None


def test_better_figures_of_a_round_replace_the_first_and_another_lineage_those_beyond_it():
    trend = trend_of([5.0, 4.0, 3.0])
    trend.note(3, 2.0)
    assert (trend.best, trend.num_rounds) == (2.0, 3)
    trend.note(2, 4.5)
    assert (trend.best, trend.num_rounds) == (4.5, 2)


def test_no_more_rounds_are_kept_than_are_looked_at():
    trend = trend_of([float(k) for k in range(100)])
    assert trend.num_rounds == KEPT_ROUNDS
    assert trend.best == 100.0 - KEPT_ROUNDS
