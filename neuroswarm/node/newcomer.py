"""Whether this node came into the middle of a round, so that it only follows until the next.

It has not heard what was said there, and a ballot of its own might split it. Knows nothing of how
it came.
"""

from __future__ import annotations

from typing import Protocol


class Voters(Protocol):
    """The other peers that take part in rounds."""

    def has_voters(self) -> bool:
        """Whether there is any."""
        ...

    def newest_round(self) -> int | None:
        """The newest round that any of them holds a state of; None without any."""
        ...


class Newcomer:
    """Follows the round that the node came into; if nobody else votes, it does not wait."""

    def __init__(self) -> None:
        self._round: int | None = None
        self._is_returning = False

    def came_into(self, round_: int) -> None:
        """The node joined others in that round."""
        self._round = round_

    def comes_back(self) -> None:
        """The node was away, and has to catch up first."""
        self._is_returning = True

    def follows(self, round_: int, crowd: Voters) -> bool:
        """Whether to say nothing in the round in progress."""
        if self._is_returning:
            newest = crowd.newest_round()
            if newest is None:
                return False
            if round_ < newest:
                return True
            self._round, self._is_returning = round_, False
        return round_ == self._round and crowd.has_voters()
