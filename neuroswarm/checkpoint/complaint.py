"""One line in the log when something stops working, one when it works again.

And how long to leave it alone between: pauses that grow. Pure but for the log.
"""

from __future__ import annotations

import logging

FIRST_PAUSE_S = 5.0
MAX_PAUSE_S = 600.0


class Complaint:
    """Trouble with one thing.

    Args:
        logger: Where to say it.
        consequence: What follows from the trouble, for people.
    """

    def __init__(self, logger: logging.Logger, consequence: str) -> None:
        self._logger = logger
        self._consequence = consequence
        self._pause_s = 0.0
        self._until = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether it did not work the last time."""
        return self._pause_s > 0

    def is_pausing(self, now: float) -> bool:
        """Whether it should not be tried yet. `now` in seconds of a monotonic clock."""
        return now < self._until

    def failed(self, error: Exception, now: float) -> None:
        """It did not work: say so the first time, and leave it alone for longer each time."""
        if not self.is_open:
            self._logger.warning("%s (%s)", error, self._consequence)
        else:
            self._logger.debug("still: %s", error)
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s or FIRST_PAUSE_S)
        self._until = now + self._pause_s

    def worked(self, what: str) -> None:
        """It worked: say so if it did not before."""
        if self.is_open:
            self._logger.info("%s again", what)
        self._pause_s, self._until = 0.0, float("-inf")
