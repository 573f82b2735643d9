from __future__ import annotations

import pytest

from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.positions import MAX_PEERS, Positions, Standing
from neuroswarm.values import NodeId

PEER = NodeId(b"p" * 20)


def digest(name: int) -> bytes:
    return bytes([name]) * 32


def history(start: int = 0, rounds: int = 3) -> History:
    lineage = History(start, digest(start))
    for round_ in range(start, start + rounds):
        lineage.append(FinishedRound(round_, digest(round_), digest(round_ + 1), (), ()))
    return lineage


@pytest.mark.parametrize(
    ("round_", "held", "standing"),
    [
        (0, b"", Standing.UNKNOWN),
        (3, digest(3), Standing.LEVEL),
        (2, digest(2), Standing.BEHIND),
        (4, digest(4), Standing.AHEAD),
        (3, digest(9), Standing.APART),
        (1, digest(9), Standing.APART),
    ],
)
def test_a_peer_stands_where_its_newest_statement_says(
    round_: int, held: bytes, standing: Standing
):
    positions = Positions()
    positions.note(PEER, round_, held)
    assert positions.standing(PEER, history()) is standing


def test_a_peer_that_said_nothing_is_unknown():
    assert Positions().standing(PEER, history()) is Standing.UNKNOWN
    assert Positions().rounds_behind(PEER, history()) == 0


def test_a_round_that_is_forgotten_here_is_behind():
    positions = Positions()
    positions.note(PEER, 0, digest(9))
    assert positions.standing(PEER, history(start=5)) is Standing.BEHIND
    assert positions.rounds_behind(PEER, history(start=5)) == 8


def test_an_older_round_in_a_statement_is_no_news():
    positions = Positions()
    positions.note(PEER, 3, digest(3))
    positions.note(PEER, 2, digest(9))
    assert positions.standing(PEER, history()) is Standing.LEVEL
    positions.note(PEER, 3, digest(9))
    assert positions.standing(PEER, history()) is Standing.APART


def test_a_newer_heartbeat_may_go_back():
    positions = Positions()
    positions.note_heartbeat(PEER, 7, 3, digest(3))
    positions.note_heartbeat(PEER, 8, 2, digest(2))
    assert positions.standing(PEER, history()) is Standing.BEHIND
    positions.note_heartbeat(PEER, 7, 3, digest(3))
    assert positions.standing(PEER, history()) is Standing.BEHIND, "an old heartbeat"


def test_a_statement_counts_beside_an_older_heartbeat():
    positions = Positions()
    positions.note_heartbeat(PEER, 7, 2, digest(2))
    positions.note(PEER, 3, digest(3))
    positions.note_heartbeat(PEER, 7, 2, digest(2))
    assert positions.standing(PEER, history()) is Standing.LEVEL


def test_a_standing_lasts_until_it_changes():
    positions, here = Positions(), history()
    positions.note(PEER, 4, digest(4))
    assert positions.lasting(PEER, here, 10.0) == (Standing.AHEAD, 0.0)
    assert positions.lasting(PEER, here, 12.5) == (Standing.AHEAD, 2.5)
    positions.note(PEER, 5, digest(5))
    assert positions.lasting(PEER, here, 13.0) == (Standing.AHEAD, 3.0)
    positions.note_heartbeat(PEER, 1, 3, digest(3))
    assert positions.lasting(PEER, here, 14.0) == (Standing.LEVEL, 0.0)
    assert positions.lasting(NodeId(b"q" * 20), here, 14.0) == (Standing.UNKNOWN, 0.0)


def test_who_is_first_apart_and_then_ahead_has_been_elsewhere_all_the_time():
    positions, here = Positions(), history()
    positions.note(PEER, 3, digest(9))
    assert positions.lasting(PEER, here, 10.0) == (Standing.APART, 0.0)
    positions.note(PEER, 5, digest(8))
    assert positions.lasting(PEER, here, 12.0) == (Standing.AHEAD, 2.0)
    positions.note_heartbeat(PEER, 1, 3, digest(3))
    assert positions.lasting(PEER, here, 13.0) == (Standing.LEVEL, 0.0)
    positions.note(PEER, 4, digest(4))
    assert positions.lasting(PEER, here, 14.0) == (Standing.AHEAD, 0.0)


def test_positions_are_bounded_and_made_up_peers_push_no_living_one_out():
    positions = Positions()
    positions.note(PEER, 3, digest(3))
    crowd = [NodeId(number.to_bytes(20, "big")) for number in range(2 * MAX_PEERS)]
    for sequence, made_up in enumerate(crowd):
        positions.note(made_up, 3, digest(3))
        if sequence % 1000 == 0:
            positions.note_heartbeat(PEER, sequence, 3, digest(3))
    assert positions.standing(PEER, history()) is Standing.LEVEL
    assert positions.standing(crowd[0], history()) is Standing.UNKNOWN
    assert positions.standing(crowd[-1], history()) is Standing.LEVEL
