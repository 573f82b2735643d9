"""Which of two lineages wins: support, ties, and claims that cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from heard import Heard

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


def weigh(
    own: History,
    other: Claim,
    is_counted: Callable[[NodeId], bool] = lambda _: True,
    *,
    heard: Mapping[bytes, int] | None = None,
    quorum: int = 1,
    most_on: Collection[bytes] = (),
) -> Comparison | None:
    """Compare, having heard so many peers stand on states."""

    def adherents(digests: Collection[bytes]) -> frozenset[NodeId]:
        numbers = [(heard or {}).get(digest, 0) for digest in digests]
        return frozenset(speaker.node_id for speaker in SPEAKERS[: max(numbers, default=0)])

    return compare(own, other, Heard(quorum, is_counted, adherents, frozenset(most_on)))


def judge(
    own: History, other: History, is_counted: Callable[[NodeId], bool] = lambda _: True
) -> Comparison | None:
    return weigh(own, claim(other), is_counted)


def test_lineages_that_agree_are_one():
    longer, shorter = lineage(["", "", ""], [3, 3, 3]), lineage(["", ""], [3, 3])
    assert judge(longer, shorter) is None
    assert judge(shorter, longer) is None


def test_more_support_in_any_one_round_since_the_fork_wins():
    own = lineage(["", "x", "x"], [8, 2, 2])
    other = lineage(["", "y", "y"], [8, 1, 3])
    assert judge(own, other) == Comparison(2, 1, own_support=2, other_support=3, other_wins=True)
    assert judge(other, own) == Comparison(2, 1, own_support=3, other_support=2, other_wins=False)


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
    assert comparison == Comparison(1, 0, own_support=1, other_support=1, other_wins=False)


@pytest.mark.parametrize(("mine", "theirs", "wins"), [(GREAT, SMALL, True), (SMALL, GREAT, False)])
def test_of_two_geneses_the_smaller_digest_wins(mine: bytes, theirs: bytes, wins: bool):
    found = weigh(History(0, mine), Claim(0, theirs, ()), heard={mine: 1, theirs: 1})
    assert found == Comparison(0, None, 1, 1, other_wins=wins)


def test_another_outcome_of_the_same_set_is_a_lie():
    own = lineage(["", "x"], [3, 2])
    round_ = own.since(1)[0]
    lie = ClaimedRound(1, round_.base_digest, GREAT, round_.signers, set_hash(ids("x")))
    with pytest.raises(ProtocolViolation, match="another outcome"):
        weigh(own, Claim(2, GREAT, (lie,)))


def test_what_both_agree_on_last_counts_and_not_a_mistake_before_it():
    own, other = lineage(["", "x", ""], [3, 2, 2]), lineage(["", "y", ""], [3, 8, 8])
    assert judge(own, other) is None
    own, other = lineage(["", "x", "", "x"], [3] * 4), lineage(["", "y", "", "y"], [3, 8, 8, 2])
    assert judge(own, other) == Comparison(4, 3, own_support=3, other_support=2, other_wins=False)


@pytest.mark.parametrize("num_rounds", [1, 3])
def test_where_most_peers_stand_now_goes_before_who_once_confirmed_more(num_rounds: int):
    """Peers that confirmed a round and left for another lineage leave nobody behind for ever."""
    once = lineage(["", *"x" * num_rounds], [8, *[5] * num_rounds])
    now = lineage(["", *"y" * num_rounds], [8, *[4] * num_rounds])
    found = weigh(once, claim(now), most_on=[now.digest], quorum=6)
    assert found == Comparison(2, 1, own_support=5, other_support=4, other_wins=True)
    back = weigh(now, claim(once), most_on=[now.digest], quorum=6)
    assert back == Comparison(2, 1, own_support=4, other_support=5, other_wins=False)


def test_where_most_peers_stand_decides_without_a_common_round_too():
    own, other = History(50, state(50)), backed_claim(100, 1)
    gone = weigh(own, other, heard={state(50): 3}, most_on=[state(100)])
    assert gone == Comparison(50, None, own_support=3, other_support=1, other_wins=True)
    stays = weigh(own, backed_claim(100, 5), most_on=[state(50)])
    assert stays == Comparison(50, None, own_support=0, other_support=5, other_wins=False)


def backed_claim(round_: int, support: int) -> Claim:
    signers = frozenset(speaker.node_id for speaker in SPEAKERS[:support])
    last = ClaimedRound(round_ - 1, state(round_ - 1), state(round_), signers, b"s" * 32)
    return Claim(round_, state(round_), (last,))


@pytest.mark.parametrize(
    ("support", "heard_here", "quorum", "wins"),
    [(3, 2, 2, True), (2, 2, 2, False), (1, 0, 2, False), (1, 0, 1, True), (3, 2, 4, False)],
)
def test_without_a_common_round_more_voices_win_and_never_the_greater_round(
    support: int, heard_here: int, quorum: int, wins: bool
):
    own, here = History(50, state(50)), {state(50): heard_here}
    for round_ in (10, 100, 2**31):
        found = weigh(own, backed_claim(round_, support), heard=here, quorum=quorum)
        assert found is not None
        assert (found.own_support, found.other_support) == (heard_here, support)
        assert found.other_wins is wins


def test_a_lineage_without_a_quorum_wins_over_none_that_has_one():
    own, other = lineage(["", "y"], [3, 2]), claim(lineage(["", "x"], [3, 1]))
    assert state(2, "x") < state(2, "y")
    lone = lineage(["", "y"], [3, 1])
    for quorum, mine, wins in ((2, own, False), (2, lone, True), (1, own, False), (1, lone, True)):
        found = weigh(mine, other, quorum=quorum)
        assert found is not None
        assert found.other_wins is wins


def test_peers_heard_on_a_state_are_voices_for_its_lineage():
    """A node that has just joined has no confirms, and is not for that to be led away."""
    own, other = lineage(["", "y"], [0, 0]), claim(lineage(["", "x"], [0, 1]))
    found = weigh(own, other, heard={state(2, "y"): 3})
    assert found == Comparison(2, 1, own_support=3, other_support=1, other_wins=False)
    before = weigh(own, other, heard={state(1): 3})
    assert before == Comparison(2, 1, own_support=0, other_support=1, other_wins=True)


def test_a_known_digest_of_long_ago_shows_the_same_lineage():
    own = History(50, state(50))
    unsaid = Claim(200, state(200), (), known=(50, state(50)))
    assert weigh(own, unsaid) is None
    differing = weigh(own, Claim(200, state(200), (), known=(50, GREAT)))
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
