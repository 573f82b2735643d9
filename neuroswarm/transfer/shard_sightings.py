"""Which peers hold which shards, as far as they said so, and whom to ask next.

Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroswarm.values import NodeId, PeerAddress

ASK_EVERY_S = 30.0
"""Pause before a peer is asked again."""

ASK_SOON_S = 5.0
"""The same for a node that has nothing to train on yet."""

MAX_ASKED_AT_ONCE = 16


@dataclass(slots=True)
class _Sighting:
    asked_at: float
    held: int = 0
    """One bit a shard."""


class ShardSightings:
    """What the live peers hold of one corpus; a set of shards is an int with a bit for each."""

    def __init__(self, num_shards: int) -> None:
        """Know of nobody yet."""
        self._all = (1 << num_shards) - 1
        self._seen: dict[NodeId, _Sighting] = {}

    def choose(
        self, live: Sequence[PeerAddress], now: float, *, is_urgent: bool
    ) -> list[PeerAddress]:
        """Whom to ask now, those asked longest ago first; peers that are gone are forgotten."""
        there = {peer.node_id for peer in live}
        self._seen = {n: seen for n, seen in self._seen.items() if n in there}
        pause_s = ASK_SOON_S if is_urgent else ASK_EVERY_S
        asked_at = {n: seen.asked_at for n, seen in self._seen.items()}
        due = [p for p in live if now - asked_at.get(p.node_id, float("-inf")) >= pause_s]
        due.sort(key=lambda peer: asked_at.get(peer.node_id, float("-inf")))
        for peer in due[:MAX_ASKED_AT_ONCE]:
            self._seen.setdefault(peer.node_id, _Sighting(now)).asked_at = now
        return due[:MAX_ASKED_AT_ONCE]

    def note(self, peer: NodeId, bits: bytes) -> None:
        """What a peer said; bits beyond the corpus count for nothing."""
        if peer in self._seen:
            self._seen[peer].held = int.from_bytes(bits, "little") & self._all

    def lost(self, peer: NodeId, index: int) -> None:
        """A peer does not hold a shard any more."""
        if peer in self._seen:
            self._seen[peer].held &= ~(1 << index)

    def held_by(self, peer: NodeId) -> int:
        """What a peer holds."""
        return self._seen[peer].held if peer in self._seen else 0

    @property
    def obtainable(self) -> int:
        """What at least one peer holds."""
        found = 0
        for seen in self._seen.values():
            found |= seen.held
        return found

    @property
    def num_holders(self) -> int:
        """Peers that hold anything."""
        return sum(bool(seen.held) for seen in self._seen.values())
