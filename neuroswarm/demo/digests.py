"""Whether the honest peers held the same bits after every round.

A pure function of their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuroswarm.demo.events import Committed, PeerRecord

CATCH_UP_S = 20.0
"""Seconds that a live peer may take to reach a round that another has reached."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the digests compared. A round is named by the outer state that it led to."""

    compared: tuple[int, ...]
    """Rounds that at least two peers held, ascending."""
    unequal: tuple[int, ...]
    """Those after which some live peer held other bits, or none in time, and stayed so."""
    repairs: int
    """Moves to another lineage, over all peers."""

    @property
    def equal_share(self) -> float:
        """Share of the compared rounds that were equal; 0 if none was compared."""
        if not self.compared:
            return 0.0
        return 1.0 - len(self.unequal) / len(self.compared)


def compare_digests(peers: Sequence[PeerRecord]) -> Agreement:
    """Compare the peers' digests round by round.

    A peer is right after round r if it holds the digest that most hold, or if it was repaired
    later: it moved to the right digest of r or of a later round. One that was live for
    `CATCH_UP_S` after the first peer reached r and never reached r or a later round is wrong;
    one that ended before, or joined later, does not count.

    Args:
        peers: The honest peers.
    """
    held = {peer.name: _held_at_last(peer) for peer in peers}
    rounds = sorted({r for digests in held.values() for r in digests})
    right = {r: _majority(r, held) for r in rounds}
    compared, unequal = [], []
    for r in rounds:
        first_at = min(e.time for p in peers for e in p.committed if e.round == r)
        verdicts = [_is_right(peer, r, held[peer.name], right, first_at) for peer in peers]
        known = [verdict for verdict in verdicts if verdict is not None]
        if len(known) > 1:
            compared.append(r)
            if not all(known):
                unequal.append(r)
    repairs = sum(event.is_repair for peer in peers for event in peer.committed)
    return Agreement(tuple(compared), tuple(unequal), repairs)


def _held_at_last(peer: PeerRecord) -> dict[int, str]:
    """Digest by round, as it stood after all repairs."""
    held: dict[int, str] = {}
    for event in peer.committed:
        if event.is_repair:
            held = {r: digest for r, digest in held.items() if r < event.round}
        held[event.round] = event.digest
    return held


def _majority(r: int, held: Mapping[str, Mapping[int, str]]) -> str:
    votes = Counter(digests[r] for digests in held.values() if r in digests)
    return max(votes, key=lambda digest: (votes[digest], digest))


def _is_right(
    peer: PeerRecord,
    r: int,
    held: Mapping[int, str],
    right: Mapping[int, str],
    first_at: float,
) -> bool | None:
    """Whether the peer was right after round r; None if it does not count."""
    if held.get(r) == right[r]:
        return True
    lives = [life for life in peer.lives if life.started_at <= first_at < life.ended_at]
    later = [event for event in peer.committed if event.round >= r]
    if r not in held:
        has_joined = any(event.round < r for event in peer.committed)
        if not lives or not has_joined:
            return None
        if not later:
            return False if lives[0].ended_at > first_at + CATCH_UP_S else None
    return any(_puts_right(event, held, right) for event in later)


def _puts_right(event: Committed, held: Mapping[int, str], right: Mapping[int, str]) -> bool:
    is_move = event.is_repair or event.is_download
    return is_move and held.get(event.round) == event.digest == right[event.round]
