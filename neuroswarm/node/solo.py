"""Holds the inner steps of a node that is alone at the end of each round, until it is committed.

So what a lone node computes depends on its seed and its data alone, not on how fast its disk or
its event loop is, and a resumed run equals the uninterrupted one bit for bit. With peers nothing
is ever held. Knows nothing of how rounds end.
"""

from __future__ import annotations

import time

from neuroswarm.clock import Clock
from neuroswarm.training.compute import RESTED, Rested
from neuroswarm.training.trained_model import StepReport, TrainedModel

MAX_HOLD_S = 10.0
"""Longest wait at the end of one round; then training goes on, whatever holds the round up."""

REST_S = 0.001
"""Between two looks whether it is over."""


class Solo:
    """Takes inner steps, unless the round of a lone node is at its end.

    Threads: the compute thread, but for `hold_at`, which any thread may set.
    """

    def __init__(self, trainer: TrainedModel, clock: Clock) -> None:
        self.hold_at: int | None = None
        """Inner steps of a round after which to hold; None where there are peers."""
        self._trainer = trainer
        self.clock = clock
        """Measures the rest."""
        self._is_committing = False
        self._held_since: float | None = None

    def begin_commit(self) -> None:
        """The local parameters are being published: hold until the outer state has moved."""
        self._is_committing = self.hold_at is not None

    def end_commit(self) -> None:
        """The outer state has moved."""
        self._is_committing = False
        self._held_since = None

    @property
    def is_committing(self) -> bool:
        """Whether a publication of a lone node is under way."""
        return self._is_committing and self.hold_at is not None

    def step(self) -> StepReport | Rested:
        """Take an inner step; a moment's rest instead while the round is at its end.

        Raises:
            ComputeError: as `Trainer.step`.
        """
        if self.is_held():
            time.sleep(REST_S)
            return RESTED
        return self._trainer.step()

    def is_held(self) -> bool:
        """Whether no further step is to be taken now; for at most `MAX_HOLD_S` in one round."""
        hold_at = self.hold_at
        if hold_at is None:
            return False
        if not self._is_committing and self._trainer.progress.steps < hold_at:
            return False
        now = self.clock.monotonic()
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since < MAX_HOLD_S
