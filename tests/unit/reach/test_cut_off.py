from __future__ import annotations

from neuroswarm.reach.cut_off import AFTER_S, CutOff
from neuroswarm.values import NodeId

ANNA, BERT = NodeId(b"a" * 20), NodeId(b"b" * 20)


def lines(cut_off: CutOff, known: dict[int, set[NodeId]], until: int) -> list[int]:
    """The seconds at which something is said, with the peers known from some seconds on."""
    said, now_known = [], set[NodeId]()
    for second in range(until):
        now_known = known.get(second, now_known)
        if cut_off.look(now_known, float(second)):
            said.append(second)
        for peer in now_known:
            cut_off.failed(peer, float(second))
    return said


def test_it_is_said_once_a_minute_that_nobody_answers():
    assert lines(CutOff(), {0: {ANNA, BERT}}, 200) == [61, 121, 181]


def test_nothing_is_said_while_nobody_is_known():
    assert lines(CutOff(), {}, 200) == []


def test_peers_that_are_heard_of_now_and_then_count():
    known = {n: {ANNA} if n % 30 == 0 else set() for n in range(0, 300, 15)}
    assert len(lines(CutOff(), known, 300)) >= 3


def test_nothing_is_said_once_a_peer_has_answered_or_another_one_came():
    cut_off = CutOff()
    assert not cut_off.look({ANNA}, 0.0)
    cut_off.failed(ANNA, 1.0)
    assert not cut_off.look({ANNA}, 2.0)
    assert not cut_off.look({ANNA, BERT}, 50.0)
    assert not cut_off.look({ANNA}, 70.0)
    cut_off.answered(ANNA)
    assert not cut_off.look({ANNA}, 70.0 + AFTER_S)
    cut_off.failed(ANNA, 140.0)
    assert not cut_off.look({ANNA}, 141.0)
    assert cut_off.look({ANNA}, 141.0 + AFTER_S)
