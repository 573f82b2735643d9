from __future__ import annotations

import pytest

from neuroswarm.heartbeat.links import MAX_LINKS, Hears, Links
from neuroswarm.values import NodeId

INTERVAL_S = 5.0
A, B = (NodeId(name * 20) for name in (b"a", b"b"))


@pytest.fixture
def links() -> Links:
    return Links(INTERVAL_S)


def test_whom_a_datagram_is_for_is_told_whether_it_was_heard_lately(links):
    assert links.tell(None, 0.0) is Hears.NO
    assert links.tell(A, 0.0) is Hears.NO
    links.note(A, Hears.NO, 0.0)
    assert links.tell(A, 3 * INTERVAL_S) is Hears.YES
    assert links.tell(A, 3 * INTERVAL_S + 0.1) is Hears.NO


def test_a_link_is_one_way_once_a_peer_that_is_heard_has_been_deaf_for_three_intervals(links):
    for beat in range(5):
        links.note(A, Hears.NO, beat * INTERVAL_S)
        links.note(B, Hears.YES, beat * INTERVAL_S)
        assert links.one_way(beat * INTERVAL_S) == ([A] if beat == 4 else [])
    links.note(A, Hears.YES, 5 * INTERVAL_S)
    assert links.one_way(5 * INTERVAL_S) == []


def test_a_greeting_of_one_who_does_not_know_where_it_goes_is_outweighed(links):
    for beat in range(9):
        links.note(A, Hears.NO, beat * INTERVAL_S)
        links.note(A, Hears.YES, beat * INTERVAL_S)
    links.note(A, Hears.NO, 9 * INTERVAL_S)
    assert links.one_way(9 * INTERVAL_S) == []


def test_a_peer_that_is_not_heard_any_more_is_no_link(links):
    for beat in range(5):
        links.note(A, Hears.NO, beat * INTERVAL_S)
    assert links.one_way(8 * INTERVAL_S) == []


def test_a_peer_that_does_not_say_is_not_deaf(links):
    for beat in range(9):
        links.note(A, Hears.UNKNOWN, beat * INTERVAL_S)
    assert links.one_way(8 * INTERVAL_S) == []


def test_links_are_bounded_and_the_most_silent_one_goes(links):
    for number in range(MAX_LINKS + 1):
        links.note(NodeId(number.to_bytes(20, "big")), Hears.NO, float(number))
    assert links.tell(NodeId(bytes(20)), 0.0) is Hears.NO
    assert links.tell(NodeId((1).to_bytes(20, "big")), 1.0) is Hears.YES
