"""Which peers hold which shards, as far as they said so, and whom to ask next.

What a peer says is a claim: one that it does not keep when it is asked for bytes counts for nothing
for a while. Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neuroswarm.values import NodeId, PeerAddress

ASK_EVERY_S = 30.0
"""Pause before a peer is asked again."""

ASK_SOON_S = 5.0
"""The same for a node that has nothing to train on yet."""

MAX_ASKED_AT_ONCE = 16

DOUBT_AFTER = 3
"""A claim is doubted once bytes were asked for in vain so often, and"""

DOUBT_AFTER_S = 60.0
"""for so long: a donor may be busy with others for a time."""

DOUBT_S = 120.0
"""How long a claim that is doubted counts for nothing."""


@dataclass(slots=True)
class _Doubt:
    """How often something was asked for in vain, one time after the other."""

    began_at: float
    count: int = 0
    until: float = float("-inf")

    def grow(self, now: float) -> None:
        self.count += 1
        if self.count >= DOUBT_AFTER and now - self.began_at >= DOUBT_AFTER_S:
            self.began_at, self.count, self.until = now, 0, now + DOUBT_S


@dataclass(slots=True)
class _Sighting:
    asked_at: float
    held: int = 0
    """One bit a shard."""
    doubt: _Doubt | None = None
    """Of all that it says, while it gives nothing at all."""
    doubts: dict[int, _Doubt] = field(default_factory=dict)
    """Of single shards; at most one for each of the corpus."""

    def believable(self, now: float) -> int:
        if self.doubt is not None and now < self.doubt.until:
            return 0
        held = self.held
        for index, doubt in self.doubts.items():
            if now < doubt.until:
                held &= ~(1 << index)
        return held


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

    def gave(self, peer: NodeId, index: int) -> None:
        """Bytes of a shard came from a peer, at a rate that is worth while."""
        if peer in self._seen:
            self._seen[peer].doubt = None
            self._seen[peer].doubts.pop(index, None)

    def refused(self, peer: NodeId, index: int, now: float) -> None:
        """A peer was asked for bytes of a shard and gave none, or next to none."""
        if peer in self._seen:
            seen = self._seen[peer]
            seen.doubt = seen.doubt or _Doubt(now)
            for doubt in (seen.doubt, seen.doubts.setdefault(index, _Doubt(now))):
                doubt.grow(now)

    def held_by(self, peer: NodeId) -> int:
        """What a peer says that it holds."""
        return self._seen[peer].held if peer in self._seen else 0

    def holders(self, index: int) -> list[NodeId]:
        """Peers that say that they hold a shard."""
        return [peer for peer, seen in self._seen.items() if seen.held >> index & 1]

    @property
    def obtainable(self) -> int:
        """What at least one peer says that it holds."""
        found = 0
        for seen in self._seen.values():
            found |= seen.held
        return found

    def believable(self, now: float) -> int:
        """The same without claims that were not kept of late."""
        found = 0
        for seen in self._seen.values():
            found |= seen.believable(now)
        return found

    @property
    def num_holders(self) -> int:
        """Peers that hold anything."""
        return sum(bool(seen.held) for seen in self._seen.values())
