from __future__ import annotations

import logging

from neuroswarm.membership.address_quota import choose_quota
from neuroswarm.membership.peer_table import FORGET_INTERVALS, PeerTable
from neuroswarm.values import NodeId
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, Signed

INTERVAL_S = 5.0
HOME, AWAY = "10.0.0.7", "10.0.0.8"


def observe(
    table: PeerTable, number: int, host: str, *, seen: str | None = None, sequence: int = 1,
    now: float = 0.0,
) -> bool:  # fmt: skip
    heartbeat = Heartbeat(b"s" * 32, sequence, 0.0, host, 8101, 9999, 7101, 1, is_training=True)
    statement = Signed(Kind.HEARTBEAT, heartbeat.encode(), key(number), b"\0" * 64)
    return table.observe(statement, heartbeat, now, host_seen=seen)


def key(number: int) -> bytes:
    return bytes([number]) * 32


def node(number: int) -> NodeId:
    return NodeId.of_key(key(number))


def make_table(quota: int | None = 2, max_peers: int = 100) -> PeerTable:
    return PeerTable(NodeId(b"m" * 20), INTERVAL_S, max_peers, max_per_address=quota)


def test_the_quota_is_that_asked_for_else_sixteen_in_open_swarms_only():
    assert choose_quota(None, is_open=True) == 16
    assert choose_quota(None, is_open=False) is None
    assert choose_quota(3, is_open=True) == choose_quota(3, is_open=False) == 3


def test_an_address_has_so_many_places_and_others_are_free():
    table = make_table()
    assert [observe(table, n, HOME, seen=HOME) for n in (1, 2, 3)] == [True, True, False]
    assert observe(table, 4, AWAY, seen=AWAY)
    assert table.quota.num_refused == 1
    assert observe(table, 1, HOME, seen=HOME, sequence=2)


def test_without_a_quota_as_many_as_come():
    table = make_table(None)
    assert all(observe(table, n, HOME, seen=HOME) for n in range(50))


def test_where_it_was_seen_counts_and_not_where_it_says_to_be():
    table = make_table()
    assert [observe(table, n, f"10.9.0.{n}", seen=HOME) for n in (1, 2, 3)] == [True, True, False]


def test_hearsay_counts_where_it_says_to_be():
    table = make_table()
    assert [observe(table, n, HOME) for n in (1, 2, 3)] == [True, True, False]


def test_who_is_seen_takes_the_place_of_hearsay_so_that_nobody_is_kept_out_of_home():
    table = make_table()
    observe(table, 1, HOME)
    observe(table, 2, HOME)
    assert observe(table, 3, HOME, seen=HOME)
    assert observe(table, 4, HOME, seen=HOME)
    assert {peer.node_id for peer in table.all(0.0)} == {node(3), node(4)}
    assert not observe(table, 5, HOME, seen=HOME)


def test_hearsay_that_comes_itself_keeps_its_place():
    table = make_table()
    observe(table, 1, HOME)
    assert not observe(table, 1, HOME, seen=HOME)  # the same record: no news, but it was seen
    observe(table, 2, HOME)
    observe(table, 3, HOME, seen=HOME)
    assert {peer.node_id for peer in table.all(0.0)} == {node(1), node(3)}


def test_a_peer_moves_only_to_an_address_with_a_place():
    table = make_table(1)
    observe(table, 1, HOME, seen=HOME)
    observe(table, 2, AWAY, seen=AWAY)
    assert not observe(table, 1, AWAY, seen=AWAY, sequence=2)
    assert table.get(node(1)).host_seen == HOME
    assert observe(table, 1, "10.0.0.9", seen="10.0.0.9", sequence=3)
    assert observe(table, 3, HOME, seen=HOME)


def test_hearsay_of_a_peer_that_was_seen_does_not_move_it():
    table = make_table(1)
    observe(table, 1, HOME, seen=HOME)
    observe(table, 2, AWAY, seen=AWAY)
    assert observe(table, 1, AWAY, sequence=2)


def test_a_forgotten_peer_frees_its_place():
    table = make_table(1)
    observe(table, 1, HOME, seen=HOME)
    later = (FORGET_INTERVALS + 1) * INTERVAL_S
    table.expire(later)
    assert observe(table, 2, HOME, seen=HOME, now=later)


def test_a_peer_for_which_the_table_has_no_room_holds_no_place():
    table = make_table(1, max_peers=1)
    observe(table, 1, HOME, seen=HOME)
    assert not observe(table, 2, AWAY, seen=AWAY)
    assert not table.quota._members.keys() - {HOME}


def test_an_ipv6_network_is_one_address():
    table = make_table()
    hosts = [f"2001:db8::{n}" for n in (1, 2, 3)]
    assert [observe(table, i, h, seen=h) for i, h in enumerate(hosts)] == [True, True, False]


def test_refusals_are_said_once_a_minute_with_the_address(caplog):
    caplog.set_level(logging.WARNING)
    table = make_table(1)
    observe(table, 0, HOME, seen=HOME)
    for second in (0.0, 1.0, 59.0, 61.0):
        observe(table, 1, HOME, seen=HOME, now=second)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(f"more than 1 peers at {HOME}: 1 refused")
    assert "3 refused" in lines[1]
    assert "network.max_peers_per_address" in lines[1]
