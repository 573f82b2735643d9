"""Which of two lineages wins, by what their rounds' confirms prove.

A lineage on which two thirds of the live peers stand now wins. Otherwise its key is the most
distinct confirm signers in any one round since the fork, or those who were heard to stand on its
states since then, if they are more; then the smaller digest of the first divergent round (DESIGN
4.7, decision 016). Knows nothing of downloads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from neuroswarm.errors import ProtocolViolation
from neuroswarm.rounds.history import History
from neuroswarm.values import NodeId


@dataclass(frozen=True, slots=True)
class ClaimedRound:
    """A finished round as another peer tells it."""

    round: int
    base_digest: bytes
    next_digest: bytes
    signers: frozenset[NodeId] = frozenset()
    """Verified signers of confirms on that base digest; empty if no confirms were given."""
    set_hash: bytes | None = None
    """Name of the set that they confirm."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What another peer says of its lineage."""

    round: int
    digest: bytes
    finished: tuple[ClaimedRound, ...]
    """Ascending, joined end to end, ending in `round` and `digest`."""
    known: tuple[int, bytes] | None = None
    """A round that was asked for and the digest that it had there; None if it is forgotten."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where two lineages part and which of them wins."""

    first_divergent_round: int
    last_common_round: int | None
    """Newest round of which both remember the same digest; None without one."""
    own_support: int
    other_support: int
    other_wins: bool


class Audience(Protocol):
    """What this node itself has heard of where peers stand."""

    @property
    def quorum(self) -> int:
        """Signers that cannot all be hostile."""
        ...

    def is_counted(self, signer: NodeId) -> bool:
        """Whether a signer's voice counts (it is no proven equivocator)."""
        ...

    def adherents(self, digests: Collection[bytes]) -> frozenset[NodeId]:
        """Who was heard to stand on one of these states, now or before."""
        ...

    def is_most(self, digests: Collection[bytes]) -> bool:
        """Whether two thirds of the live training peers stand on one of these states now."""
        ...


def compare(own: History, other: Claim, heard: Audience) -> Comparison | None:
    """Compare two lineages; None if they agree on the newest rounds that both remember.

    What they agree on last counts: digests before it in which they differ are a mistake of one of
    them, for lineages that have parted do not meet again.

    Unless most peers stand on one of them now, the other one wins only with the voices of a
    quorum, or if this one has no quorum either. Where they remember no round in common, they are
    taken for two lineages, and the other one wins only with a quorum and more voices than this
    one: how far ahead it claims to be says nothing, since its round may be made up. (Of two
    geneses the smaller digest wins.)

    Args:
        own: The lineage stood on.
        other: The claim, its confirms verified by the caller.
        heard: Where peers stand.

    Raises:
        ProtocolViolation: the claim cannot be true: another outcome of the same set, since the
            outer step is exact.
    """
    theirs = _states(other)
    ours = {r: digest for r in theirs if (digest := own.digest_at(r)) is not None}
    if not ours:
        return _compare_apart(own, other, heard)
    last_common = max((r for r in ours if theirs[r] == ours[r]), default=None)
    parted = [r for r in ours if last_common is None or r > last_common]
    if not parted:
        return None
    fork = min(parted)
    _check_plausible(own, other, fork)
    own_states = own.digests_since(fork)
    own_support = _support(_voices(own), fork, own_states, heard)
    other_states = [digest for r, digest in theirs.items() if r >= fork]
    other_support = _support(_voices(other), fork, other_states, heard)
    is_proven = other_support >= heard.quorum or own_support < heard.quorum
    wins = (other_support, _descending(theirs[fork])) > (own_support, _descending(ours[fork]))
    if heard.is_most(own_states):
        wins = False
    elif heard.is_most(other_states):
        wins = is_proven = True
    return Comparison(fork, last_common, own_support, other_support, is_proven and wins)


def _check_plausible(own: History, other: Claim, fork: int) -> None:
    mine = own.find(fork - 1)
    claimed = next((f for f in other.finished if f.round == fork - 1), None)
    if mine is None or claimed is None or claimed.base_digest != mine.base_digest:
        return
    if claimed.set_hash == mine.set_hash:
        raise ProtocolViolation(f"another outcome of the same set in round {fork - 1}")


def _compare_apart(own: History, other: Claim, heard: Audience) -> Comparison:
    own_states, other_states = own.digests_since(0), list(_states(other).values())
    own_support = _support(_voices(own), 0, own_states, heard)
    other_support = _support(_voices(other), 0, other_states, heard)
    wins = other_support >= heard.quorum and other_support > own_support
    if heard.is_most(own_states):
        wins = False
    elif heard.is_most(other_states):
        wins = True
    return Comparison(min(own.round, other.round), None, own_support, other_support, wins)


def _states(claim: Claim) -> dict[int, bytes]:
    digests = dict([claim.known]) if claim.known is not None else {}
    for finished in claim.finished:
        digests[finished.round] = finished.base_digest
    digests[claim.round] = claim.digest
    return digests


def _voices(lineage: History | Claim) -> Iterable[tuple[int, frozenset[NodeId]]]:
    finished = lineage.since(0) if isinstance(lineage, History) else lineage.finished
    return ((f.round, f.signers) for f in finished)


def _support(
    rounds: Iterable[tuple[int, frozenset[NodeId]]],
    fork: int,
    states: Collection[bytes],
    heard: Audience,
) -> int:
    # The round before the first divergent state is the one that the two sides decided apart.
    counts = [sum(map(heard.is_counted, signers)) for r, signers in rounds if r >= fork - 1]
    return max([*counts, sum(map(heard.is_counted, heard.adherents(states)))])


def _descending(digest: bytes) -> bytes:
    """Orders digests so that the smaller one is the greater key."""
    return bytes(255 - byte for byte in digest)


def is_chain(claim: Claim) -> bool:
    """Whether claimed rounds join end to end and lead to the claimed state."""
    ends = [(f.round + 1, f.next_digest) for f in claim.finished]
    starts = [(f.round, f.base_digest) for f in claim.finished[1:]]
    starts.append((claim.round, claim.digest))
    return not ends or ends == starts
