"""Whom a lookup has heard of, whom it asks next, and when it is over. No I/O.

Source: Maymounkov and Mazieres 2002, "Kademlia", section 2.3. Differs: a lookup is over when the
8 nearest nodes that live have answered, however near the others claim to be; what it hears of is
signed by whom it names, so that a liar can keep nodes from it, but cannot invent any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.dht.routing import BUCKET_SIZE, distance
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.signed import Signed

MAX_CANDIDATES = 128
"""Nodes that a lookup remembers; the farthest ones that were not asked go first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node to ask."""

    node_id: NodeId
    endpoint: Endpoint
    signed: Signed
    """Its own contact, which names that endpoint."""
    sequence: int = 0
    """Of the contact: of two the newer one counts."""


class Shortlist:
    """The state of one lookup."""

    def __init__(self, key: bytes, candidates: Iterable[Candidate], *, me: NodeId) -> None:
        self._key = key
        self._me = me
        self._known: dict[NodeId, Candidate] = {}
        self._asked: set[NodeId] = set()
        self._answered: set[NodeId] = set()
        self._failed: set[NodeId] = set()
        self.add(candidates)

    @property
    def num_asked(self) -> int:
        """Nodes asked so far."""
        return len(self._asked)

    @property
    def is_over(self) -> bool:
        """Whether the 8 nearest nodes that live, or all of fewer, have answered."""
        return all(candidate.node_id in self._answered for candidate in self._nearest())

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Take nodes that were heard of."""
        for candidate in candidates:
            known = self._known.get(candidate.node_id)
            is_settled = candidate.node_id in self._asked or candidate.node_id == self._me
            if is_settled or (known is not None and known.sequence >= candidate.sequence):
                continue
            self._known[candidate.node_id] = candidate
        if len(self._known) > MAX_CANDIDATES:
            self._trim()

    def choose_next(self) -> Candidate | None:
        """The nearest node among the 8 that was not asked yet, which counts as asked now."""
        for candidate in self._nearest():
            if candidate.node_id not in self._asked:
                self._asked.add(candidate.node_id)
                return candidate
        return None

    def note_answer(self, node_id: NodeId) -> None:
        """A node that was asked has answered."""
        self._answered.add(node_id)

    def note_failure(self, node_id: NodeId) -> None:
        """A node that was asked did not answer, or wrongly: the next one takes its place."""
        self._failed.add(node_id)

    def closest(self, count: int = BUCKET_SIZE) -> list[Candidate]:
        """The nearest nodes that answered."""
        answered = [self._known[node_id] for node_id in self._answered]
        return sorted(answered, key=self._distance)[:count]

    def _nearest(self) -> list[Candidate]:
        alive = [c for c in self._known.values() if c.node_id not in self._failed]
        return sorted(alive, key=self._distance)[:BUCKET_SIZE]

    def _distance(self, candidate: Candidate) -> int:
        return distance(candidate.node_id, self._key)

    def _trim(self) -> None:
        unasked = [c for c in self._known.values() if c.node_id not in self._asked]
        excess = len(self._known) - MAX_CANDIDATES
        for candidate in sorted(unasked, key=self._distance, reverse=True)[:excess]:
            del self._known[candidate.node_id]
