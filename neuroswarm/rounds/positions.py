"""Where every peer stands: the newest round and digest that it has signed for.

Knows nothing of what is done about peers that are ahead, behind or on another lineage.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from neuroswarm.rounds.history import History
from neuroswarm.values import NodeId

MAX_PEERS = 8192
MAX_DIGESTS = 1024
"""States of which it is remembered who was heard to stand on them."""
MAX_ADHERENTS = 256
"""Peers remembered of one state."""


class Standing(enum.Enum):
    """A peer's position seen from this node's history."""

    UNKNOWN = "unknown"
    """It has no state yet, or its round is forgotten here."""
    BEHIND = "behind"
    LEVEL = "level"
    AHEAD = "ahead"
    APART = "apart"
    """It signed another digest for a round that this node remembers."""


_ELSEWHERE = frozenset({Standing.AHEAD, Standing.APART})


@dataclass(slots=True)
class _Position:
    round: int
    digest: bytes
    sequence: int = -1
    """Of the newest heartbeat that was taken over."""
    standing: Standing = Standing.UNKNOWN
    since: float = 0.0


class Positions:
    """The newest position of each signer; at the bound the one that was silent longest goes."""

    def __init__(self) -> None:
        self._positions: OrderedDict[NodeId, _Position] = OrderedDict()
        self._adherents: OrderedDict[bytes, set[NodeId]] = OrderedDict()

    def adherents(self, digests: Iterable[bytes]) -> frozenset[NodeId]:
        """Who was heard to stand on one of these states, now or before."""
        found = (self._adherents.get(digest, ()) for digest in digests)
        return frozenset().union(*found)

    def stands_on(self, signer: NodeId, digests: Collection[bytes]) -> bool:
        """Whether the newest state that a peer was heard to stand on is one of these."""
        known = self._positions.get(signer)
        return known is not None and known.digest in digests

    def _note_adherent(self, signer: NodeId, digest: bytes) -> None:
        known = self._adherents.setdefault(digest, set())
        self._adherents.move_to_end(digest)
        if len(known) < MAX_ADHERENTS:
            known.add(signer)
        if len(self._adherents) > MAX_DIGESTS:
            # A state that one peer alone speaks of goes first: anyone can name such states.
            lonely = next((d for d, who in self._adherents.items() if len(who) == 1), None)
            del self._adherents[lonely or next(iter(self._adherents))]

    def note(self, signer: NodeId, round_: int, digest: bytes) -> None:
        """A peer signed that it holds this state; an older round than known is not news."""
        if digest:
            self._note_adherent(signer, digest)
        known = self._positions.get(signer)
        if known is None:
            if len(self._positions) >= MAX_PEERS:
                self._positions.popitem(last=False)
            self._positions[signer] = _Position(round_, digest)
            return
        self._positions.move_to_end(signer)
        if round_ >= known.round:
            known.round, known.digest = round_, digest

    def note_heartbeat(self, signer: NodeId, sequence: int, round_: int, digest: bytes) -> None:
        """A peer's newest heartbeat: it counts even if it went back to an older round."""
        if signer not in self._positions:
            self.note(signer, round_, digest)
        elif digest and digest != self._positions[signer].digest:
            self._note_adherent(signer, digest)
        known = self._positions[signer]
        self._positions.move_to_end(signer)
        if sequence > known.sequence:
            known.round, known.digest, known.sequence = round_, digest, sequence

    def standing(self, signer: NodeId, history: History) -> Standing:
        """Where a peer stands now."""
        known = self._positions.get(signer)
        if known is None or not known.digest:
            return Standing.UNKNOWN
        if known.round > history.round:
            return Standing.AHEAD
        here = history.digest_at(known.round)
        if here is None:
            return Standing.BEHIND
        if here != known.digest:
            return Standing.APART
        return Standing.LEVEL if known.round == history.round else Standing.BEHIND

    def rounds_behind(self, signer: NodeId, history: History) -> int:
        """How many rounds a peer is behind this node; 0 if it is not known or not behind."""
        known = self._positions.get(signer)
        return 0 if known is None else max(0, history.round - known.round)

    def lasting(self, signer: NodeId, history: History, now: float) -> tuple[Standing, float]:
        """A peer's standing, and for how many seconds it has lasted.

        Ahead and apart are one as to that: a node that has come over to an old state of the
        others' lineage needs no patience to see that they are ahead.
        """
        known = self._positions.get(signer)
        standing = self.standing(signer, history)
        if known is None:
            return standing, 0.0
        if standing is not known.standing:
            if not {standing, known.standing} <= _ELSEWHERE:
                known.since = now
            known.standing = standing
        return standing, now - known.since
