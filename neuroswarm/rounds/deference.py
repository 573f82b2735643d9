"""When a node lets its rounds rest, because most peers that it hears are elsewhere.

Rounds that a minority finishes while it looks for the way to the others are lost on it and put
off the moment when all hold the same state. Decides only: no I/O, no clock.
"""

from __future__ import annotations

import math

MAX_DEFERENCE_S = 15.0
"""A node defers no longer at a time: enough to ask several peers and to replay a round."""

REST_FACTOR = 10
"""After it deferred in vain it goes on by itself for so many times as long: whoever invents
identities that claim to be elsewhere takes no more than an eleventh of its time."""


class Deference:
    """Defers while as many training peers are elsewhere as are with this node, or more."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rests_until = -math.inf

    def found_the_way(self) -> None:
        """This node came a step nearer to the others: it defers anew until it is with them."""
        self._since, self._rests_until = None, -math.inf

    def is_due(self, now: float, *, num_with_me: int, num_elsewhere: int) -> bool:
        """Whether to publish nothing now. Inner steps go on meanwhile, and are published later.

        Args:
            now: Seconds of a monotonic clock, never less than before.
            num_with_me: Live training peers on this node's lineage, itself among them.
            num_elsewhere: Those that have been on another lineage, or ahead, for a while.
        """
        if num_elsewhere < max(1, num_with_me):
            self._since = None
            return False
        if now < self._rests_until:
            return False
        if self._since is None:
            self._since = now
        if now < self._since + MAX_DEFERENCE_S:
            return True
        self._since = None
        self._rests_until = now + REST_FACTOR * MAX_DEFERENCE_S
        return False
