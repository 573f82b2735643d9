from __future__ import annotations

from neuroswarm.membership.verdicts import DOUBTFUL_S, FRESH_S, MAX_VERDICTS, Verdicts
from neuroswarm.values import NodeId, Reach

HOST = "10.0.0.1"


def peer(number: int) -> NodeId:
    return NodeId(bytes([number]) * 20)


def noted(*hosts: str, at: float = 0.0) -> Verdicts:
    """Verdicts of as many peers, one an instant."""
    verdicts = Verdicts()
    for number, host in enumerate(hosts):
        verdicts.note(peer(number), host, at + number)
    return verdicts


def test_nothing_is_known_before_anybody_tried():
    assert noted().reach is Reach.UNKNOWN


def test_most_verdicts_decide_and_a_tie_is_closed():
    assert noted(HOST).reach is Reach.OPEN
    assert noted("").reach is Reach.CLOSED
    verdicts = noted(HOST, "")
    verdicts.note(peer(1), "", 20.0)
    assert verdicts.reach is Reach.CLOSED
    verdicts.note(peer(2), HOST, 21.0)
    assert verdicts.reach is Reach.OPEN


def test_one_lost_packet_is_no_verdict_while_others_reach_the_node():
    verdicts = noted(HOST, "")
    assert verdicts.missed_by == frozenset()
    assert verdicts.is_due(peer(1), 1.0 + DOUBTFUL_S), "asked again soon"
    verdicts.note(peer(1), "", 1.0 + DOUBTFUL_S)
    assert verdicts.missed_by == {peer(1)}
    assert not verdicts.is_due(peer(1), 1.0 + 2 * DOUBTFUL_S)
    verdicts.note(peer(1), HOST, 200.0)
    assert verdicts.missed_by == frozenset()


def test_peers_are_asked_again_when_their_word_is_old():
    verdicts = noted(HOST)
    assert not verdicts.is_due(peer(0), FRESH_S - 1)
    assert verdicts.is_due(peer(0), FRESH_S)


def test_the_word_of_few_is_kept_and_of_none_that_left():
    verdicts = noted(*[HOST] * (MAX_VERDICTS + 4))
    assert len(verdicts) == MAX_VERDICTS
    assert not verdicts.is_due(peer(99), 0.0), "enough are asked"
    verdicts.forget_gone({peer(MAX_VERDICTS)}, FRESH_S)
    assert len(verdicts) == MAX_VERDICTS, "they may come back"
    verdicts.forget_gone({peer(MAX_VERDICTS)}, FRESH_S + MAX_VERDICTS + 4)
    assert len(verdicts) == 1
    assert verdicts.is_due(peer(99), 0.0)


def test_another_host_is_better_if_most_reach_the_node_only_there():
    assert noted("192.0.2.1", "192.0.2.1", "").better_host(HOST) == "192.0.2.1"
    assert noted("192.0.2.1", HOST).better_host(HOST) is None
    assert noted("192.0.2.1", "", "").better_host(HOST) is None
    assert noted("").better_host(HOST) is None
