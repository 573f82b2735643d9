"""What a node remembers of its lineage, and what it concludes about others."""

import json

import pytest
from heard import Heard

from neuroswarm.errors import CheckpointCorrupt, ProtocolViolation
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.lineage import Claim, ClaimedRound, compare
from neuroswarm.wire.messages import Confirm, set_hash
from neuroswarm.wire.signed import Kind, sign

SWARM = bytes(32)


def digest(round_: int, lineage: str = "a") -> bytes:
    return f"{lineage}{round_}".encode().ljust(32, b".")


def finished(round_: int, keys: list[NodeKey], lineage: str = "a") -> FinishedRound:
    base = digest(round_, lineage)
    agreed = (bytes([round_ % 256]) * 32,)
    body = Confirm(SWARM, round_, base, agreed).encode()
    confirms = tuple(sign(Kind.CONFIRM, body, key) for key in keys)
    return FinishedRound(round_, base, digest(round_ + 1, lineage), agreed, confirms)


def history(rounds: range, keys: list[NodeKey], lineage: str = "a") -> History:
    found = History(rounds.start, digest(rounds.start, lineage))
    for round_ in rounds:
        found.append(finished(round_, keys, lineage))
    return found


def claim(of: History, *, known_round: int | None = None) -> Claim:
    rounds = tuple(
        ClaimedRound(f.round, f.base_digest, f.next_digest, f.signers, f.set_hash)
        for f in of.since(0)
    )
    known = None if known_round is None else of.digest_at(known_round)
    return Claim(of.round, of.digest, rounds, None if known is None else (known_round or 0, known))


def keys(count: int) -> list[NodeKey]:
    return [NodeKey.generate() for _ in range(count)]


def test_digests_are_remembered_longer_than_rounds():
    found = history(range(200), keys(1))
    assert found.find(0) is None
    assert found.digest_at(0) == digest(0)
    assert found.digest_at(200) == digest(200)
    assert found.digest_at(201) is None


def test_a_restart_keeps_digests_and_the_last_rounds_confirms():
    before = history(range(100), keys(3))
    text = json.dumps(before.to_json())
    after = History.from_json(json.loads(text), before.round, before.digest)
    assert (after.round, after.digest) == (100, digest(100))
    assert [after.digest_at(r) for r in range(101)] == [digest(r) for r in range(101)]
    assert after.since(0) == before.since(99)


def test_a_last_round_that_did_not_lead_to_the_state_beside_it_is_left_out():
    """As of a node that was stopped between its move and the entry in its history."""
    before = history(range(5), keys(3))
    after = History.from_json(before.to_json(), 6, digest(6))
    assert (after.round, after.digest) == (6, digest(6))
    assert after.find(5) is None
    assert after.digest_at(5) == digest(5)
    other = History(5, digest(5), earlier={4: digest(4, "b")}).to_json()
    mixed = {**other, "last_confirms": before.to_json()["last_confirms"]}
    assert History.from_json(mixed, 5, digest(5)).find(4) is None


def test_gaps_in_the_digests_survive_a_restart():
    before = History(50, digest(50), earlier={3: digest(3), 4: digest(4), 9: digest(9)})
    after = History.from_json(before.to_json(), 50, digest(50))
    remembered = [r for r in range(60) if after.digest_at(r) is not None]
    assert remembered == [3, 4, 9, 50]


@pytest.mark.parametrize(
    "damage",
    [{"rounds": [[0, 7]]}, {"digests": "!"}, {"last_confirms": ["AAAA"]}, {"last_set": ["xy"]}],
    ids=["rounds", "digests", "confirms", "set"],
)
def test_a_damaged_history_is_refused(damage: dict[str, object]):
    before = history(range(5), keys(1))
    with pytest.raises(CheckpointCorrupt, match="history"):
        History.from_json({**before.to_json(), **damage}, before.round, before.digest)


def test_going_back_forgets_what_came_after():
    found = history(range(10), keys(1))
    found.rewind(6, digest(6))
    assert (found.round, found.digest) == (6, digest(6))
    assert [f.round for f in found.since(0)] == list(range(6))
    assert found.digest_at(7) is None


def test_a_peer_far_ahead_on_the_same_lineage_is_recognised_by_an_old_digest():
    mine, theirs = history(range(5), keys(3)), history(range(300), keys(1))
    assert compare(mine, claim(theirs, known_round=5), Heard()) is None


def test_nobody_is_followed_on_its_own_word_from_rounds_that_nobody_else_knows():
    """A peer that claims to be hundreds of rounds ahead, with its own confirms alone."""
    mine, theirs = history(range(5), keys(3)), history(range(400, 500), keys(1), "b")
    found = compare(mine, claim(theirs, known_round=5), Heard())
    assert found is not None
    assert (found.own_support, found.other_support, found.other_wins) == (3, 1, False)


def test_of_two_lineages_without_a_common_round_nobody_moves_for_equal_voices():
    ours, theirs = history(range(5), keys(2)), history(range(400, 500), keys(2), "b")
    here = compare(ours, claim(theirs), Heard())
    there = compare(theirs, claim(ours), Heard())
    assert here is not None
    assert there is not None
    assert (here.other_wins, there.other_wins) == (False, False)


def test_support_decides_and_then_the_smaller_digest():
    few, many = history(range(4), keys(2), "a"), history(range(4), keys(3), "b")
    found = compare(few, claim(many), Heard())
    assert found is not None
    assert found.other_wins
    equal = compare(history(range(4), keys(2), "b"), claim(few), Heard())
    assert equal is not None
    assert equal.other_wins, "digests of lineage a are smaller"


def test_another_outcome_of_the_same_set_cannot_be():
    signers = keys(2)
    mine = history(range(4), signers)
    rounds = claim(mine).finished
    last = rounds[-1]
    forged = ClaimedRound(last.round, last.base_digest, digest(4, "x"), last.signers, last.set_hash)
    with pytest.raises(ProtocolViolation, match="same set"):
        compare(mine, Claim(4, digest(4, "x"), (*rounds[:-1], forged)), Heard())
    assert last.set_hash == set_hash((bytes([3]) * 32,))
