"""Notices that peers are known, but none of them answers: behind routers, with nobody public.

Refuses to ask; it is told who answered and who did not.
"""

from __future__ import annotations

from collections.abc import Collection

from neuroswarm.values import NodeId

AFTER_S = 60.0
"""Seconds without any answer, and between two lines about it."""

_REMEMBERED_S = 180.0
"""Peers that are heard of now and then only, by a tracker, stay the same ones for so long."""


class CutOff:
    """Who did not answer last; all instants are of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._failed_at: dict[NodeId, float] = {}
        self._since: float | None = None
        self._heard_of_at = float("-inf")
        self._said_at = float("-inf")

    def failed(self, peer: NodeId, now: float) -> None:
        """A peer did not answer."""
        self._failed_at[peer] = now

    def answered(self, peer: NodeId) -> None:
        """A peer answered, whatever it said."""
        self._failed_at.pop(peer, None)
        self._since = None

    def look(self, known: Collection[NodeId], now: float) -> bool:
        """Whether it is to be said now that none of the known peers answers."""
        self._failed_at = {
            id_: at for id_, at in self._failed_at.items() if now - at < _REMEMBERED_S
        }
        if known:
            self._heard_of_at = now
            if not all(peer in self._failed_at for peer in known):
                self._since = None
            elif self._since is None:
                self._since = now
        elif now - self._heard_of_at > AFTER_S:
            self._since = None  # whoever looks for peers says what is wrong
        if self._since is None or now - max(self._since, self._said_at) < AFTER_S:
            return False
        self._said_at = now
        return True
