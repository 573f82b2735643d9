"""What peers found when they tried to call this node back, and what follows from it.

A liar's word costs little: with a false "not reached" this node takes relays that it does not need,
with a false "reached" it needs one more honest peer to see that it does. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from neuroswarm.values import NodeId, Reach

MAX_VERDICTS = 16
"""Peers whose word is kept: enough that a quarter of liars is outvoted."""

FRESH_S = 120.0
"""Age at which a peer is asked again."""

DOUBTFUL_S = 10.0
"""The same after a first "not reached", which may have been a lost packet."""


@dataclass(slots=True)
class Verdict:
    """What one peer found last; instants are of the monotonic clock, in seconds."""

    reached_host: str
    """Where it reached this node; empty if it did not."""
    at: float
    num_failed: int
    """Times in a row that it did not."""


class Verdicts:
    """The newest word of at most `MAX_VERDICTS` peers; the oldest word gives way."""

    def __init__(self) -> None:
        self._verdicts: dict[NodeId, Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def note(self, peer: NodeId, reached_host: str, now: float) -> None:
        """Take a peer's word; an empty host says that it did not reach this node."""
        known = self._verdicts.pop(peer, None)
        num_failed = 0 if reached_host else 1 + (known.num_failed if known else 0)
        self._verdicts[peer] = Verdict(reached_host, now, num_failed)
        if len(self._verdicts) > MAX_VERDICTS:
            del self._verdicts[min(self._verdicts, key=lambda id_: self._verdicts[id_].at)]

    def forget_gone(self, peers: Collection[NodeId], now: float) -> None:
        """Forget the old word of those that are not among these peers any more.

        A fresh one stays: where heartbeats get lost, peers come and go.
        """
        self._verdicts = {
            id_: v for id_, v in self._verdicts.items() if id_ in peers or now - v.at < FRESH_S
        }

    def is_due(self, peer: NodeId, now: float) -> bool:
        """Whether this peer is to be asked (again)."""
        known = self._verdicts.get(peer)
        if known is None:
            return len(self._verdicts) < MAX_VERDICTS
        return now - known.at >= (DOUBTFUL_S if known.num_failed == 1 else FRESH_S)

    @property
    def reached_by(self) -> int:
        """Peers that reached this node when they tried last."""
        return sum(bool(verdict.reached_host) for verdict in self._verdicts.values())

    @property
    def missed_by(self) -> frozenset[NodeId]:
        """Peers that did not reach it; once does not count while others do."""
        least = 2 if self.reached_by else 1
        return frozenset(id_ for id_, v in self._verdicts.items() if v.num_failed >= least)

    @property
    def reach(self) -> Reach:
        """Whether most of them reach it."""
        if not self.reached_by and not self.missed_by:
            return Reach.UNKNOWN
        return Reach.OPEN if self.reached_by > len(self.missed_by) else Reach.CLOSED

    def better_host(self, announced: str) -> str | None:
        """A host to announce instead: most reached it there, and nobody where it says to be."""
        hosts = [v.reached_host for v in self._verdicts.values() if v.reached_host]
        if not hosts or announced in hosts:
            return None
        best = max(sorted(set(hosts)), key=hosts.count)
        return best if 2 * hosts.count(best) > len(self._verdicts) else None
