"""Which of two lineages wins: support, ties, and claims that cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from neuroswarm.errors import ProtocolViolation
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.lineage import Claim, ClaimedRound, Comparison, compare, is_chain
from neuroswarm.testing.speaker import Speaker
from neuroswarm.values import NodeId
from neuroswarm.wire.messages import set_hash

SPEAKERS = [Speaker(name) for name in "abcdefgh"]
SMALL, GREAT = b"\1" * 32, b"\2" * 32


def state(round_: int, branch: str = "") -> bytes:
    return round_.to_bytes(4, "big") + branch.encode().ljust(28, b"-")


def ids(branch: str) -> tuple[bytes, ...]:
    return (branch.encode().ljust(32, b"-"),)


def lineage(branches: Sequence[str], supports: Sequence[int]) -> History:
    """A lineage whose round r leads to branch `branches[r]` with `supports[r]` confirms."""
    history = History(0, state(0))
    for round_, (branch, support) in enumerate(zip(branches, supports, strict=True)):
        base = history.digest
        confirms = [s.about(round_, base).confirm(ids(branch)) for s in SPEAKERS[:support]]
        after = state(round_ + 1, branch)
        history.append(FinishedRound(round_, base, after, ids(branch), tuple(confirms)))
    return history


def claim(history: History) -> Claim:
    rounds = tuple(
        ClaimedRound(f.round, f.base_digest, f.next_digest, f.signers, f.set_hash)
        for f in history.since(0)
    )
    return Claim(history.round, history.digest, rounds)


def judge(
    own: History, other: History, is_counted: Callable[[NodeId], bool] = lambda _: True
) -> Comparison | None:
    return compare(own, claim(other), is_counted)


def test_lineages_that_agree_are_one():
    longer, shorter = lineage(["", "", ""], [3, 3, 3]), lineage(["", ""], [3, 3])
    assert judge(longer, shorter) is None
    assert judge(shorter, longer) is None


def test_more_support_in_any_one_round_since_the_fork_wins():
    own = lineage(["", "x", "x"], [8, 2, 2])
    other = lineage(["", "y", "y"], [8, 1, 3])
    assert judge(own, other) == Comparison(2, own_support=2, other_support=3, other_wins=True)
    assert judge(other, own) == Comparison(2, own_support=3, other_support=2, other_wins=False)


def test_support_before_the_fork_does_not_count():
    own = lineage(["", "x"], [8, 1])
    other = lineage(["", "y"], [1, 2])
    comparison = judge(own, other)
    assert comparison is not None
    assert comparison.other_wins


def test_equal_support_is_decided_by_the_smaller_digest_of_the_fork():
    own, other = lineage(["", "x", "a"], [3, 2, 2]), lineage(["", "y", "b"], [3, 2, 2])
    first, second = judge(own, other), judge(other, own)
    assert first is not None
    assert second is not None
    assert state(2, "x") < state(2, "y")
    assert (first.other_wins, second.other_wins) == (False, True)


def test_the_length_of_a_lineage_is_no_argument():
    own, other = lineage(["x"], [2]), lineage(["y"] * 9, [1] * 9)
    comparison = judge(own, other)
    assert comparison is not None
    assert not comparison.other_wins


def test_voices_of_the_banned_do_not_count():
    own, other = lineage(["x"], [2]), lineage(["y"], [3])
    banned = {speaker.node_id for speaker in SPEAKERS[1:3]}
    comparison = judge(own, other, lambda signer: signer not in banned)
    assert comparison == Comparison(1, own_support=1, other_support=1, other_wins=False)


@pytest.mark.parametrize(("mine", "theirs", "wins"), [(GREAT, SMALL, True), (SMALL, GREAT, False)])
def test_of_two_geneses_the_smaller_digest_wins(mine: bytes, theirs: bytes, wins: bool):
    found = compare(History(0, mine), Claim(0, theirs, ()), lambda _: True)
    assert found == Comparison(0, 0, 0, other_wins=wins)


def test_another_outcome_of_the_same_set_is_a_lie():
    own = lineage(["", "x"], [3, 2])
    round_ = own.since(1)[0]
    lie = ClaimedRound(1, round_.base_digest, GREAT, round_.signers, set_hash(ids("x")))
    with pytest.raises(ProtocolViolation, match="another outcome"):
        compare(own, Claim(2, GREAT, (lie,)), lambda _: True)


def test_lineages_that_part_and_meet_again_are_a_lie():
    own, other = lineage(["", "x", ""], [3, 2, 2]), lineage(["", "y", ""], [3, 8, 8])
    with pytest.raises(ProtocolViolation, match="meets"):
        judge(own, other)


def test_without_a_common_round_support_decides_then_the_round():
    own = History(50, state(50))
    far = ClaimedRound(99, state(99), state(100), frozenset({SPEAKERS[0].node_id}), b"s" * 32)
    backed = compare(own, Claim(100, state(100), (far,)), lambda _: True)
    assert backed is not None
    assert backed.other_wins
    bare = compare(own, Claim(10, state(10), ()), lambda _: True)
    assert bare is not None
    assert not bare.other_wins


def test_a_known_digest_of_long_ago_shows_the_same_lineage():
    own = History(50, state(50))
    unsaid = Claim(200, state(200), (), known=(50, state(50)))
    assert compare(own, unsaid, lambda _: True) is None
    differing = compare(own, Claim(200, state(200), (), known=(50, GREAT)), lambda _: True)
    assert differing is not None
    assert differing.first_divergent_round == 50


def test_a_chain_joins_end_to_end_and_leads_to_the_claimed_state():
    whole = claim(lineage(["", "x"], [1, 1]))
    assert is_chain(whole)
    assert is_chain(Claim(5, GREAT, ()))
    first, second = whole.finished
    assert not is_chain(Claim(whole.round, GREAT, whole.finished))
    assert not is_chain(Claim(whole.round + 1, whole.digest, whole.finished))
    assert not is_chain(Claim(whole.round, whole.digest, (second, first)))
    assert not is_chain(Claim(whole.round, whole.digest, (first,)))
