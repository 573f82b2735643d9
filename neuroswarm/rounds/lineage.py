"""Which of two lineages wins, by what their rounds' confirms prove.

The key of a lineage is the most distinct confirm signers in any one round since the fork, or those
who were heard to stand on its states since then, if they are more; then the smaller digest of the
first divergent round (DESIGN 4.7). Knows nothing of downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

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
    own_support: int
    other_support: int
    other_wins: bool


Adherents = Callable[[Collection[bytes]], frozenset[NodeId]]
"""Who was heard to stand on one of these states, now or before."""


def compare(
    own: History,
    other: Claim,
    is_counted: Callable[[NodeId], bool],
    *,
    adherents: Adherents,
    quorum: int,
) -> Comparison | None:
    """Compare two lineages; None if they agree on every round that both remember.

    The other one wins only with the voices of a quorum, or if this one has no quorum either.
    Where they remember no round in common, they are taken for two lineages, and the other one
    wins only with a quorum and more voices than this one: how far ahead it claims to be says
    nothing, since its round may be made up. (Of two geneses the smaller digest wins.)

    Args:
        own: The lineage stood on.
        other: The claim, its confirms verified by the caller.
        is_counted: Whether a signer's voice counts (it is no proven equivocator).
        adherents: As heard by this node itself.
        quorum: Signers that cannot all be hostile.

    Raises:
        ProtocolViolation: the claim cannot be true: another outcome of the same set, since the
            outer step is exact, or lineages that part and meet again.
    """
    theirs = _states(other)
    ours = {r: digest for r in theirs if (digest := own.digest_at(r)) is not None}
    if not ours:
        return _compare_apart(own, other, is_counted, adherents, quorum)
    common = sorted(ours)
    fork = next((r for r in common if theirs[r] != ours[r]), None)
    if fork is None:
        return None
    _check_plausible(own, other, fork, [r for r in common if r > fork and theirs[r] == ours[r]])
    own_states = own.digests_since(fork)
    own_support = _support(_voices(own), fork, is_counted, adherents(own_states))
    other_states = [digest for r, digest in theirs.items() if r >= fork]
    other_support = _support(_voices(other), fork, is_counted, adherents(other_states))
    is_proven = other_support >= quorum or own_support < quorum
    wins = (other_support, _descending(theirs[fork])) > (own_support, _descending(ours[fork]))
    return Comparison(fork, own_support, other_support, is_proven and wins)


def _check_plausible(own: History, other: Claim, fork: int, met_again: list[int]) -> None:
    if met_again:
        raise ProtocolViolation(f"claimed lineage parts in round {fork} and meets in {met_again}")
    mine = own.find(fork - 1)
    claimed = next((f for f in other.finished if f.round == fork - 1), None)
    if mine is not None and claimed is not None and claimed.set_hash == mine.set_hash:
        raise ProtocolViolation(f"another outcome of the same set in round {fork - 1}")


def _compare_apart(
    own: History,
    other: Claim,
    is_counted: Callable[[NodeId], bool],
    adherents: Adherents,
    quorum: int,
) -> Comparison:
    own_heard, other_heard = adherents(own.digests_since(0)), adherents(_states(other).values())
    own_support = _support(_voices(own), 0, is_counted, own_heard)
    other_support = _support(_voices(other), 0, is_counted, other_heard)
    wins = other_support >= quorum and other_support > own_support
    return Comparison(min(own.round, other.round), own_support, other_support, wins)


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
    is_counted: Callable[[NodeId], bool],
    heard: frozenset[NodeId],
) -> int:
    # The round before the first divergent state is the one that the two sides decided apart.
    counts = [sum(map(is_counted, signers)) for r, signers in rounds if r >= fork - 1]
    return max([*counts, sum(map(is_counted, heard))])


def _descending(digest: bytes) -> bytes:
    """Orders digests so that the smaller one is the greater key."""
    return bytes(255 - byte for byte in digest)


def is_chain(claim: Claim) -> bool:
    """Whether claimed rounds join end to end and lead to the claimed state."""
    ends = [(f.round + 1, f.next_digest) for f in claim.finished]
    starts = [(f.round, f.base_digest) for f in claim.finished[1:]]
    starts.append((claim.round, claim.digest))
    return not ends or ends == starts
