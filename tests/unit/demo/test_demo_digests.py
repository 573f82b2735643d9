"""When rounds count as equal: tables of commits in, verdicts out."""

import pytest
from records import LONG, committed, record

from neuroswarm.demo.digests import CATCH_UP_S, compare_digests
from neuroswarm.demo.events import Life

THREE = [committed(1, 10.0), committed(2, 20.0), committed(3, 30.0)]


def test_equal_rounds_are_equal():
    agreement = compare_digests([record("a", *THREE), record("b", *THREE)])
    assert (agreement.compared, agreement.unequal, agreement.repairs) == ((1, 2, 3), (), 0)
    assert agreement.equal_share == 1.0


def test_rounds_that_one_peer_had_alone_are_not_compared():
    alone = record("a", *THREE)
    joined = record("b", committed(2, 20.0, is_download=True), lives=[Life(15.0, 29.0)])
    assert compare_digests([alone, joined]).compared == (2,)
    assert compare_digests([alone]).equal_share == 0.0


def test_different_bits_are_unequal():
    other = record("c", committed(1, 10.0), committed(2, 20.0, "wrong"), committed(3, 30.0))
    agreement = compare_digests([record("a", *THREE), record("b", *THREE), other])
    assert agreement.unequal == (2,)
    assert agreement.equal_share == pytest.approx(2 / 3)


def test_repair_by_replay_counts_as_equal():
    repaired = record(
        "c",
        committed(1, 10.0),
        committed(2, 20.0, "wrong"),
        committed(2, 24.0, is_repair=True),
        committed(3, 30.0),
    )
    agreement = compare_digests([record("a", *THREE), record("b", *THREE), repaired])
    assert (agreement.unequal, agreement.repairs) == ((), 1)


def test_repair_by_download_of_a_later_round_counts_as_equal():
    repaired = record(
        "c",
        committed(1, 10.0),
        committed(2, 20.0, "wrong"),
        committed(3, 31.0, is_repair=True, is_download=True),
    )
    assert compare_digests([record("a", *THREE), record("b", *THREE), repaired]).unequal == ()


def test_repair_to_wrong_bits_does_not():
    repaired = record(
        "c",
        committed(1, 10.0),
        committed(2, 20.0, "wrong"),
        committed(3, 31.0, "x", is_repair=True),
    )
    agreement = compare_digests([record("a", *THREE), record("b", *THREE), repaired])
    assert agreement.unequal == (2, 3)


def test_plain_next_round_on_wrong_bits_is_no_repair():
    split = record("c", committed(1, 10.0, "wrong"), committed(2, 20.0), committed(3, 30.0))
    assert compare_digests([record("a", *THREE), record("b", *THREE), split]).unequal == (1,)


def test_round_that_was_downloaded_past_counts_as_equal():
    jumped = record("c", committed(1, 10.0), committed(3, 31.0, is_download=True))
    assert compare_digests([record("a", *THREE), record("b", *THREE), jumped]).unequal == ()


def test_live_peer_that_never_follows_is_unequal():
    stuck = record("c", committed(1, 10.0), lives=[Life(0.0, 30.0 + 2 * CATCH_UP_S)])
    agreement = compare_digests([record("a", *THREE), record("b", *THREE), stuck])
    assert agreement.unequal == (2, 3)


def test_peer_that_ended_first_does_not_count():
    dead = record("c", committed(1, 10.0), lives=[Life(0.0, 20.0 + CATCH_UP_S / 2)])
    assert compare_digests([record("a", *THREE), record("b", *THREE), dead]).unequal == ()


def test_peer_that_is_restarted_is_compared_again():
    lives = [Life(0.0, 15.0), Life(25.0, 1000.0)]
    back = record("c", committed(1, 10.0), committed(3, 30.0, "wrong"), lives=lives)
    assert compare_digests([record("a", *THREE), record("b", *THREE), back]).unequal == (3,)


def test_tie_is_unequal_whoever_is_right():
    both = [record("a", committed(1, 10.0, "x")), record("b", committed(1, 10.0, "y"), lives=LONG)]
    assert compare_digests(both).unequal == (1,)
