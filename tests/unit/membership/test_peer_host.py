from __future__ import annotations

import pytest
from test_peer_table import INTERVAL_S, ME, node, observe, record

from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_host import choose_host
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.values import Endpoint, PeerAddress

A, B, C = "10.0.0.1", "192.168.1.1", "2001:db8::1"
ELSEWHERE = "203.0.113.9"
BOTH = {"host": A, "other_hosts": (B, C)}


@pytest.fixture
def table() -> PeerTable:
    return PeerTable(ME, INTERVAL_S)


@pytest.mark.parametrize(
    ("seen", "answered", "failed", "chosen"),
    [
        pytest.param(None, None, [], A, id="the first"),
        pytest.param(B, None, [], B, id="where it was seen"),
        pytest.param("::ffff:192.168.1.1", None, [], B, id="in whichever form"),
        pytest.param(ELSEWHERE, None, [], A, id="not where it did not say to be"),
        pytest.param(ELSEWHERE, None, [A, C, B], ELSEWHERE, id="there when all others failed"),
        pytest.param(ELSEWHERE, ELSEWHERE, [], ELSEWHERE, id="there when it answered there"),
        pytest.param(B, C, [], C, id="rather where it answered"),
        pytest.param(B, C, [C], B, id="not where the newest call failed"),
        pytest.param(None, None, [A], B, id="the next one"),
        pytest.param(None, None, [A, B], C, id="the one after"),
        pytest.param(None, None, [B, A, C], B, id="the one that failed longest ago"),
    ],
)
def test_a_peer_with_several_hosts_is_where_it_works(seen, answered, failed, chosen):
    assert choose_host([A, B, C], seen=seen, answered=answered, failed=failed) == chosen


def test_a_host_that_failed_is_better_than_none():
    assert choose_host([A], seen=None, answered=None, failed=[A]) == A


@pytest.mark.parametrize(
    ("seen", "chosen"), [("10.0.0.9", "10.0.0.9"), ("127.0.0.3", "127.0.0.1"), (None, "127.0.0.1")]
)
def test_a_peer_that_announces_loopback_is_where_it_was_seen(seen, chosen):
    assert choose_host(["127.0.0.1"], seen=seen, answered=None, failed=[]) == chosen


def known(table: PeerTable) -> Peer:
    peer = table.get(node(b"a"))
    assert peer is not None
    return peer


def test_failed_calls_go_through_all_hosts_and_an_answer_ends_that(table):
    observe(table, b"a", 0.0, record(**BOTH))
    tried = []
    for now in range(1, 4):
        tried.append(known(table).host)
        table.suspect(node(b"a"), float(now))
    assert tried == [A, B, C]
    table.suspect(node(b"a"), 4.0)
    table.record_rtt(node(b"a"), 0.1, 5.0)
    assert known(table).host == B
    assert known(table).is_proven_there
    table.suspect(node(b"a"), 6.0)
    assert known(table).host == A


def test_where_a_connection_of_its_own_came_about_it_is_called_from_then_on(table):
    observe(table, b"a", 0.0, record(host=A), host=ELSEWHERE)
    assert known(table).host == A
    there = PeerAddress(node(b"a"), Endpoint(ELSEWHERE, known(table).heartbeat.grpc_port))
    table.note_dialled(there, is_reached=False)
    assert known(table).host == A
    table.note_dialled(there, is_reached=True)
    assert known(table).address == there
    assert known(table).is_dialled
    observe(table, b"a", 1.0, record(2, host=A), host=ELSEWHERE)
    assert known(table).address == there


def test_a_peer_that_moves_is_called_at_its_new_host_at_once(table):
    """Others may bring the news first, and its own message the same record afterwards."""
    observe(table, b"a", 0.0, record(host=A), host=A)
    table.record_rtt(node(b"a"), 0.1, 0.5)
    observe(table, b"a", 1.0, record(2, host=B))
    assert known(table).host == B
    assert not known(table).is_proven_there
    observe(table, b"a", 1.1, record(2, host=B), host=B)
    assert known(table).is_proven_there
    table.suspect(node(b"a"), 2.0)
    assert known(table).host == B, "never again where it was"


def test_where_a_peer_neither_is_seen_nor_says_to_be_it_is_not_called(table):
    observe(table, b"a", 0.0, record(host=A), host=B)
    port = known(table).heartbeat.grpc_port
    table.note_dialled(PeerAddress(node(b"a"), Endpoint(C, port)), is_reached=True)
    assert known(table).host == A


def test_an_answer_to_a_call_of_before_the_change_proves_nothing(table):
    observe(table, b"a", 0.0, record(**BOTH))
    table.suspect(node(b"a"), 10.0)
    table.record_rtt(node(b"a"), 5.0, 11.0)
    assert not known(table).is_proven_there


def test_until_it_is_known_where_a_peer_is_it_is_told_everywhere(table):
    observe(table, b"a", 0.0, record(**BOTH))
    assert known(table).heartbeat_endpoints == tuple(Endpoint(h, 9999) for h in (A, B, C))
    observe(table, b"a", 1.0, record(2, **BOTH), host=C)
    assert known(table).heartbeat_endpoints == (Endpoint(C, 9999),)


def test_a_change_of_address_is_followed_at_once(table):
    observe(table, b"a", 0.0, record(1, host=A), host=A)
    table.record_rtt(node(b"a"), 0.1, 1.0)
    observe(table, b"a", 2.0, record(2, host=B), host=B)
    assert known(table).host == B
    assert known(table).is_proven_there
