from __future__ import annotations

import pytest

from neuroswarm.membership.conduct import (
    BAN_SCORE,
    FIRST_BAN_S,
    HALF_LIFE_S,
    MAX_BAN_S,
    WEIGHTS,
    Conduct,
    Offence,
)
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.values import NodeId

ME, ALICE, BOB = (NodeId(name * 20) for name in (b"m", b"a", b"b"))
NUM_MALFORMED = int(BAN_SCORE / WEIGHTS[Offence.MALFORMED])


def offend_until_banned(conduct: Conduct, now: float) -> float:
    """Offend at one instant until a ban; return its duration."""
    for _ in range(NUM_MALFORMED):
        ban = conduct.note(ALICE, Offence.MALFORMED, now)
    assert ban is not None
    assert ban.until is not None
    return ban.until - now


def test_every_offence_weighs_something_and_few_ban_at_once():
    assert set(WEIGHTS) == set(Offence)
    assert all(0 < weight <= BAN_SCORE for weight in WEIGHTS.values())
    assert [o for o in Offence if WEIGHTS[o] >= BAN_SCORE] == [Offence.EQUIVOCATION]


def test_offences_in_a_short_time_add_up_to_a_ban_that_says_why():
    conduct = Conduct(10)
    for _ in range(NUM_MALFORMED - 1):
        assert conduct.note(ALICE, Offence.MALFORMED, 5.0) is None
    ban = conduct.note(ALICE, Offence.MALFORMED, 5.0)
    assert ban is not None
    assert ban.reason == f"conduct: {NUM_MALFORMED} x malformed"
    assert ban.until == 5.0 + FIRST_BAN_S


def test_a_score_halves_in_its_half_life():
    conduct = Conduct(10)
    conduct.note(ALICE, Offence.WRONG_PAYLOAD, 0.0)
    weight = WEIGHTS[Offence.WRONG_PAYLOAD]
    assert conduct.standings(0.0)[ALICE].score == weight
    assert conduct.standings(HALF_LIFE_S)[ALICE].score == pytest.approx(weight / 2)
    conduct.note(ALICE, Offence.WRONG_PAYLOAD, HALF_LIFE_S)
    assert conduct.standings(HALF_LIFE_S)[ALICE].score == pytest.approx(1.5 * weight)


def test_rare_offences_never_ban():
    conduct = Conduct(10)
    apart_s = HALF_LIFE_S  # scores add up to twice the weight at most
    for i in range(1000):
        assert conduct.note(ALICE, Offence.MALFORMED, i * apart_s) is None
    assert conduct.standings(0.0)[ALICE].counts == {Offence.MALFORMED: 1000}


def test_each_further_ban_lasts_twice_as_long_up_to_a_day():
    conduct = Conduct(10)
    durations = [offend_until_banned(conduct, i * MAX_BAN_S * 2) for i in range(40)]
    assert durations[:3] == [FIRST_BAN_S, 2 * FIRST_BAN_S, 4 * FIRST_BAN_S]
    assert durations[-1] == MAX_BAN_S
    assert max(durations) == MAX_BAN_S


def test_the_table_is_bounded_and_drops_the_oldest_offence():
    conduct = Conduct(2)
    for name in (b"a", b"b", b"c"):
        conduct.note(NodeId(name * 20), Offence.FLOOD, 0.0)
    assert len(conduct) == 2
    assert set(conduct.standings(0.0)) == {NodeId(b"b" * 20), NodeId(b"c" * 20)}


def test_the_peer_table_puts_bans_into_force_until_they_end():
    table = PeerTable(ME, 5.0)
    assert [table.offend(ALICE, Offence.WRONG_PAYLOAD, 1.0) for _ in range(2)] == [False, True]
    assert table.is_banned(ALICE, 1.0)
    assert not table.is_banned(BOB, 1.0)
    assert "wrong_payload" in table.bans(1.0)[ALICE].reason
    assert not table.is_banned(ALICE, 1.0 + FIRST_BAN_S)


def test_what_a_banned_peer_sent_before_does_not_lengthen_its_ban():
    table = PeerTable(ME, 5.0)
    table.offend(ALICE, Offence.EQUIVOCATION, 0.0)
    assert not any(table.offend(ALICE, Offence.EQUIVOCATION, 1.0) for _ in range(10))
    assert table.conduct(1.0)[ALICE].num_bans == 1
    assert not table.is_banned(ALICE, FIRST_BAN_S)


def test_a_ban_for_good_outlasts_one_by_score():
    table = PeerTable(ME, 5.0)
    table.ban(ALICE, "proof", None)
    table.offend(ALICE, Offence.EQUIVOCATION, 0.0)
    assert table.bans(0.0)[ALICE].until is None


def test_a_node_never_offends_itself():
    table = PeerTable(ME, 5.0)
    assert not any(table.offend(ME, Offence.EQUIVOCATION, 0.0) for _ in range(10))
    assert table.conduct(0.0) == {}
