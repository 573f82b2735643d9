"""When a node says again what it has said in a round that goes on.

A push that finds its target away for a moment is lost, and a lost header costs the round its
grace, or the work of its author. Decides only: no I/O, no clock.
"""

from __future__ import annotations

import math

FIRST_PAUSE_S = 1.0
"""More than most rounds take once this node has published, so that few repeat anything."""

MAX_PAUSE_S = 60.0


class Repetition:
    """Pauses that double: a round of hours costs a dozen repetitions more than one of seconds."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._due_at = math.inf

    def said_something(self, now: float) -> None:
        """Something new was said: it is due again after the first pause."""
        self._pause_s = FIRST_PAUSE_S
        self._due_at = now + FIRST_PAUSE_S

    def is_due(self, now: float) -> bool:
        """Whether to say everything again now; True once a pause.

        Args:
            now: Seconds of a monotonic clock, never less than before.
        """
        if now < self._due_at:
            return False
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        self._due_at = now + self._pause_s
        return True
