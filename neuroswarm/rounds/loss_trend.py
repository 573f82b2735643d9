"""Whether the swarm's held-out loss falls, from the losses of recent rounds.

Pure; refuses to know who measured them.
"""

from __future__ import annotations

import itertools
import math
from enum import Enum

KEPT_ROUNDS = 32
"""Latest rounds that are looked at."""

MIN_ROUNDS = 5
"""Fewer say nothing: any order of four values comes by chance too often."""

SIGNIFICANT = 1.645
"""Standard deviations beyond which a trend is none of chance: one-sided, 1 of 20."""


class Trend(Enum):
    """Where a loss goes."""

    FALLING = "falling"
    LEVEL = "level"
    """Neither is more than chance makes of it."""
    RISING = "rising"


class LossTrend:
    """The losses of the latest rounds, by round."""

    def __init__(self) -> None:
        self._losses: dict[int, float] = {}

    def note(self, round_: int, loss: float) -> None:
        """Take the loss of a round's state, or a better figure of it; later rounds are forgotten.

        Args:
            round_: Of the outer state, at least 0.
            loss: Nats per token, finite.
        """
        before = {n: known for n, known in self._losses.items() if n < round_}
        self._losses = dict([*before.items(), (round_, loss)][-KEPT_ROUNDS:])

    @property
    def best(self) -> float | None:
        """The least loss of those rounds; None without any."""
        return min(self._losses.values(), default=None)

    @property
    def num_rounds(self) -> int:
        """Of how many rounds the loss is known."""
        return len(self._losses)

    @property
    def trend(self) -> Trend | None:
        """Where the loss goes; None of fewer than five rounds.

        Source: Mann 1945, "Nonparametric tests against trend", Econometrica 13, and Kendall 1975,
            chapter 4: the sum of the signs of all differences, with the normal approximation and
            its correction for continuity; both ask for no more than an order of the values.
            Differs: ties are not corrected for, which makes it see fewer trends.
        """
        values, count = list(self._losses.values()), len(self._losses)
        if count < MIN_ROUNDS:
            return None
        pairs = itertools.combinations(values, 2)
        score = sum((later > earlier) - (later < earlier) for earlier, later in pairs)
        deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        if abs(score) - 1 <= SIGNIFICANT * deviation:
            return Trend.LEVEL
        return Trend.RISING if score > 0 else Trend.FALLING
