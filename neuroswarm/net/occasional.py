"""Log lines that outsiders can provoke, held to one a minute.

Refuses to know what they say.
"""

from __future__ import annotations

from neuroswarm.clock import Clock

INTERVAL_S = 60.0


class Occasional:
    """Counts events and says when a line about them is due: at the first, then once a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending = 0
        self._next_line = clock.monotonic()

    def count(self) -> int:
        """Note one event; return how many there were since the last line if one is due, else 0."""
        self._pending += 1
        now = self._clock.monotonic()
        if now < self._next_line:
            return 0
        self._next_line = now + INTERVAL_S
        num_events, self._pending = self._pending, 0
        return num_events
