"""Takes inner steps only as often as the machine's owner allows.

Knows nothing of why; `guest` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from neuroswarm.clock import Clock
from neuroswarm.training.compute import RESTED, Rested

T = TypeVar("T")

LOOK_S = 0.05
"""Longest rest at once: jobs of the node wait for the end of it."""


class Duty:
    """Work and rest of the thread that trains.

    Threads: `step` belongs to the compute thread; the rest may be used from any.

    Args:
        share: Of the time in which to compute, above 0, at most 1.
        clock: Measures steps.
    """

    def __init__(self, share: float, clock: Clock) -> None:
        self.share = share
        self._clock = clock
        self._rest_until = clock.monotonic()
        self._is_resting = False
        self._changed = threading.Event()

    @property
    def is_resting(self) -> bool:
        """Whether no steps are taken at all."""
        return self._is_resting

    def rest(self) -> None:
        """Take no step until `work`."""
        self._changed.clear()
        self._is_resting = True

    def work(self) -> None:
        """Take steps again."""
        self._is_resting = False
        self._changed.set()

    def step(self, take: Callable[[], T | Rested]) -> T | Rested:
        """Take a step, or rest for a moment: after a step of t seconds for t (1 - share) / share.

        Raises:
            whatever `take` raises.
        """
        now = self._clock.monotonic()
        if self._is_resting:
            self._changed.wait(LOOK_S)
            return RESTED
        if now < self._rest_until:
            threading.Event().wait(min(LOOK_S, self._rest_until - now))
            return RESTED
        taken = take()
        if taken is not RESTED and self.share < 1:
            ended = self._clock.monotonic()
            self._rest_until = ended + (ended - now) * (1 - self.share) / self.share
        return taken
