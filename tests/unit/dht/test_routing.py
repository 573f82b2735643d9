"""The routing table: buckets, strikes, spare contacts, moves, and its bounds."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.dht.routing import BUCKET_SIZE, MAX_STRIKES, RoutingTable, distance
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.signed import Kind, sign

ME = NodeId(bytes(20))
SIGNED = sign(Kind.DHT_CONTACT, b"", NodeKey.generate())
ids = st.binary(min_size=20, max_size=20).map(NodeId)


def far(number: int) -> NodeId:
    """An id in the bucket of half of the space."""
    return NodeId(b"\x80" + number.to_bytes(19, "big"))


def at(number: int) -> Endpoint:
    return Endpoint(f"10.0.{number >> 8}.{number & 255}", 8101)


def filled(count: int, **options: int) -> RoutingTable:
    table = RoutingTable(ME, **options)
    for number in range(count):
        table.take(far(number), at(number), SIGNED, float(number))
    return table


def test_nearest_contacts_come_first():
    table = RoutingTable(ME)
    known = [NodeId(random.Random(i).randbytes(20)) for i in range(60)]
    for number, node_id in enumerate(known):
        table.take(node_id, at(number), SIGNED, 0.0)
    inside = {contact.node_id for contact in table}
    key = random.Random(99).randbytes(20)
    by_distance = sorted(inside, key=lambda node_id: distance(node_id, key))
    assert [contact.node_id for contact in table.closest(key)] == by_distance[:BUCKET_SIZE]
    assert [contact.node_id for contact in table.steady(key)] == by_distance[:BUCKET_SIZE]


def test_node_is_not_in_its_own_table():
    assert not RoutingTable(ME).take(ME, at(1), SIGNED, 0.0)


def test_full_bucket_keeps_the_old_ones_and_a_spare_one_takes_the_place_of_a_dead_one():
    table = filled(BUCKET_SIZE + 2)
    assert {c.node_id for c in table} == {far(n) for n in range(BUCKET_SIZE)}
    dropped = [table.note_silence(far(3)) for _ in range(MAX_STRIKES)]
    assert dropped == [False, False, True]
    assert {c.node_id for c in table} == {far(n) for n in (0, 1, 2, 4, 5, 6, 7, 9)}


def test_an_answer_wipes_out_the_strikes():
    table = filled(3)
    for _ in range(MAX_STRIKES - 1):
        table.note_silence(far(1))
    table.note_answer(far(1), 9.0)
    assert not table.note_silence(far(1))
    assert table.get(far(1)) is not None


def test_nobody_is_dropped_while_nobody_answers():
    table = filled(3)
    for _ in range(5 * MAX_STRIKES):
        dropped = [table.note_silence(far(number)) for number in range(3)]
        assert not any(dropped)
    table.note_answer(far(2), 9.0)
    assert table.note_silence(far(0))
    assert len(table) == 2


def test_who_owes_an_answer_is_asked_last_and_not_passed_on():
    table = filled(4)
    table.note_silence(far(0))
    assert table.closest(far(0))[-1].node_id == far(0)
    assert far(0) not in {contact.node_id for contact in table.steady(far(0))}


def test_contact_moves_to_the_endpoint_at_which_it_answered_last():
    table = filled(2)
    assert table.take(far(1), Endpoint("10.9.9.9", 1), SIGNED, 5.0)
    moved = table.get(far(1))
    assert moved is not None
    assert moved.endpoint == Endpoint("10.9.9.9", 1)
    assert table.take(far(1), Endpoint("10.9.9.9", 2), SIGNED, 6.0)
    assert moved.endpoint == Endpoint("10.9.9.9", 2)
    assert len(table) == 2


def test_one_address_gets_few_places_where_identities_cost_nothing():
    table = RoutingTable(ME, max_per_address=2)
    taken = [table.take(far(n), Endpoint("10.0.0.1", n + 1), SIGNED, 0.0) for n in range(4)]
    assert taken == [True, True, False, False]
    table.discard(far(0))
    assert len(table) == 2
    assert table.take(far(9), Endpoint("10.0.0.2", 1), SIGNED, 0.0)


def test_silent_contacts_are_named_longest_silence_first():
    table = filled(5)
    table.note_answer(far(0), 10.0)
    assert [c.node_id for c in table.silent_since(4.0)] == [far(1), far(2), far(3)]


@given(st.lists(st.tuples(ids, st.integers(0, 3), st.integers(0, 20)), max_size=200))
def test_table_stays_within_its_bounds_whatever_happens(
    events: list[tuple[NodeId, int, int]],
):
    table = RoutingTable(ME, max_per_address=3)
    for time, (node_id, what, host) in enumerate(events):
        if what == 0:
            table.note_silence(node_id)
        elif what == 1:
            table.discard(node_id)
        else:
            table.take(node_id, at(host), SIGNED, float(time))
    contacts = list(table)
    assert len(contacts) == len(table)
    assert len({contact.node_id for contact in contacts}) == len(contacts)
    hosts = [contact.endpoint.host for contact in contacts]
    assert all(hosts.count(host) <= 3 for host in hosts)
    prefixes = [distance(ME, contact.node_id).bit_length() for contact in contacts]
    assert all(prefixes.count(prefix) <= BUCKET_SIZE for prefix in prefixes)
