"""Who gets a statement: the targets, the hops, and what has been seen before.

Knows nothing of connections or of what statements say.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Sequence

from neuroswarm.membership.fanout import fanout
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire import limits


def choose_targets(
    peers: Sequence[PeerAddress], avoid: Collection[NodeId], rng: random.Random
) -> list[PeerAddress]:
    """Pick the peers to push to, at random, without those who have the statement for sure."""
    candidates = [peer for peer in peers if peer.node_id not in avoid]
    return rng.sample(candidates, min(fanout(len(peers)), len(candidates)))


def hops_after(hops_left: int) -> int | None:
    """Hops that a received statement has left to its relay, or None if it goes no further."""
    return None if hops_left < 1 else min(hops_left, limits.MAX_HOPS) - 1


class Seen:
    """The ids of recent statements, bounded; the oldest are forgotten first."""

    def __init__(self, max_ids: int = 65536) -> None:
        self._max = max_ids
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, statement: bytes) -> bool:
        return statement in self._ids

    def add(self, statement: bytes) -> bool:
        """Remember an id; False if it was known already."""
        if statement in self._ids:
            return False
        self._ids[statement] = None
        if len(self._ids) > self._max:
            self._ids.popitem(last=False)
        return True
