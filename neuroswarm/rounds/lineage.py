"""The finished rounds of a lineage with their support, and which of two lineages wins.

The key of a lineage is the most distinct confirm signers in any one round since the fork, then
the smaller digest of the first divergent round (DESIGN 4.7). Knows nothing of downloads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from neuroswarm.errors import ProtocolViolation
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import set_hash
from neuroswarm.wire.signed import Signed


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """One round that was committed: where it started, what it applied, where it led."""

    round: int
    base_digest: bytes
    next_digest: bytes
    contributions: tuple[bytes, ...]
    """Agreed ids, ascending; empty for a round learned by a download."""
    confirms: tuple[Signed, ...]
    """Verified confirms of exactly that set, one per signer."""

    @property
    def set_hash(self) -> bytes:
        """Name of the applied set."""
        return set_hash(self.contributions)

    @property
    def signers(self) -> frozenset[NodeId]:
        """Who confirmed it."""
        return frozenset(confirm.signer for confirm in self.confirms)


class History:
    """The latest finished rounds of the lineage that this node stands on."""

    def __init__(self, round_: int, digest: bytes) -> None:
        self.round = round_
        """Round of the outer state held."""
        self.digest = digest
        """Its digest."""
        self._finished: deque[FinishedRound] = deque(maxlen=limits.MAX_LINEAGE_ROUNDS)

    def append(self, finished: FinishedRound) -> None:
        """Note the round that led to the state now held."""
        assert finished.base_digest == self.digest, "rounds of a lineage join end to end"
        self._finished.append(finished)
        self.round, self.digest = finished.round + 1, finished.next_digest

    def rewind(self, round_: int, digest: bytes) -> None:
        """Go back to an earlier state of this lineage, held in `round_`."""
        while self._finished and self._finished[-1].round >= round_:
            self._finished.pop()
        self.round, self.digest = round_, digest

    def digest_at(self, round_: int) -> bytes | None:
        """Digest of the outer state of a round, or None if it is not remembered."""
        if round_ == self.round:
            return self.digest
        found = self.find(round_)
        return None if found is None else found.base_digest

    def find(self, round_: int) -> FinishedRound | None:
        """The finished round of that number, if it is remembered."""
        return next((f for f in reversed(self._finished) if f.round == round_), None)

    def add_confirm(self, round_: int, confirm: Signed) -> None:
        """Keep one more confirm of a finished round's set, heard late."""
        for index, f in enumerate(self._finished):
            if f.round == round_ and confirm.signer not in f.signers:
                self._finished[index] = FinishedRound(
                    f.round, f.base_digest, f.next_digest, f.contributions, (*f.confirms, confirm)
                )

    def since(self, round_: int) -> list[FinishedRound]:
        """Finished rounds from `round_` on, ascending, without gaps."""
        return [f for f in self._finished if f.round >= round_]


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Where two lineages part and which of them wins."""

    first_divergent_round: int
    own_support: int
    other_support: int
    other_wins: bool


def compare(own: History, other: Claim, is_counted: Callable[[NodeId], bool]) -> Comparison | None:
    """Compare two lineages; None if they agree on every round that both remember.

    Args:
        own: The lineage stood on.
        other: The claim, its confirms verified by the caller.
        is_counted: Whether a signer's voice counts (it is no proven equivocator).

    Raises:
        ProtocolViolation: the claim cannot be true: another outcome of the same set, since the
            outer step is exact, or lineages that part and meet again.
    """
    theirs = _states((f.round, f.base_digest, f.next_digest) for f in other.finished)
    theirs[other.round] = other.digest
    ours = _states((f.round, f.base_digest, f.next_digest) for f in own.since(0))
    ours[own.round] = own.digest
    common = sorted(theirs.keys() & ours.keys())
    fork = next((r for r in common if theirs[r] != ours[r]), None)
    if fork is None:
        return None
    _check_plausible(own, other, fork, [r for r in common if r > fork and theirs[r] == ours[r]])
    own_support = _support(((f.round, f.signers) for f in own.since(0)), fork, is_counted)
    other_support = _support(((f.round, f.signers) for f in other.finished), fork, is_counted)
    wins = (other_support, _descending(theirs[fork])) > (own_support, _descending(ours[fork]))
    return Comparison(fork, own_support, other_support, wins)


def _check_plausible(own: History, other: Claim, fork: int, met_again: list[int]) -> None:
    if met_again:
        raise ProtocolViolation(f"claimed lineage parts in round {fork} and meets in {met_again}")
    mine = own.find(fork - 1)
    claimed = next((f for f in other.finished if f.round == fork - 1), None)
    if mine is not None and claimed is not None and claimed.set_hash == mine.set_hash:
        raise ProtocolViolation(f"another outcome of the same set in round {fork - 1}")


def _states(rounds: Iterable[tuple[int, bytes, bytes]]) -> dict[int, bytes]:
    digests: dict[int, bytes] = {}
    for round_, base, after in rounds:
        digests[round_], digests[round_ + 1] = base, after
    return digests


def _support(
    rounds: Iterable[tuple[int, frozenset[NodeId]]],
    fork: int,
    is_counted: Callable[[NodeId], bool],
) -> int:
    # The round before the first divergent state is the one that the two sides decided apart.
    counts = [sum(map(is_counted, signers)) for r, signers in rounds if r >= fork - 1]
    return max(counts, default=0)


def _descending(digest: bytes) -> bytes:
    """Orders digests so that the smaller one is the greater key."""
    return bytes(255 - byte for byte in digest)


def is_chain(claim: Claim) -> bool:
    """Whether claimed rounds join end to end and lead to the claimed state."""
    ends = [(f.round + 1, f.next_digest) for f in claim.finished]
    starts = [(f.round, f.base_digest) for f in claim.finished[1:]]
    starts.append((claim.round, claim.digest))
    return not ends or ends == starts
