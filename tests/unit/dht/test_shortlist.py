"""Whom a lookup asks, and when it is over."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.dht.routing import BUCKET_SIZE, distance
from neuroswarm.dht.shortlist import MAX_CANDIDATES, Candidate, Shortlist
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.signed import Kind, sign

KEY = bytes(20)
ME = NodeId(b"\xff" * 20)
SIGNED = sign(Kind.DHT_CONTACT, b"", NodeKey.generate())


def node(number: int, sequence: int = 0) -> Candidate:
    """The node at that distance from the key."""
    node_id = NodeId(number.to_bytes(20, "big"))
    return Candidate(node_id, Endpoint("10.0.0.1", 1 + sequence), SIGNED, sequence)


def run(shortlist: Shortlist, dead: set[int], knows: dict[int, list[int]]) -> list[int]:
    """Ask until it is over; returns whom, in order."""
    asked = []
    while (candidate := shortlist.choose_next()) is not None:
        number = int.from_bytes(candidate.node_id, "big")
        asked.append(number)
        if number in dead:
            shortlist.note_failure(candidate.node_id)
        else:
            shortlist.add(node(other) for other in knows.get(number, []))
            shortlist.note_answer(candidate.node_id)
    return asked


def test_nearest_is_asked_first_and_what_it_knows_next():
    shortlist = Shortlist(KEY, [node(50), node(90)], me=ME)
    asked = run(shortlist, set(), {50: [7, 8], 7: [1]})
    assert asked == [50, 7, 1, 8, 90]
    assert shortlist.is_over
    assert [int.from_bytes(c.node_id, "big") for c in shortlist.closest(2)] == [1, 7]


def test_dead_ones_are_replaced_by_the_next_nearest():
    shortlist = Shortlist(KEY, map(node, range(1, 21)), me=ME)
    assert run(shortlist, {1, 2, 3}, {}) == list(range(1, 12))
    assert shortlist.is_over
    assert len(shortlist.closest()) == BUCKET_SIZE


def test_lookup_is_not_over_while_one_of_the_nearest_owes_its_answer():
    shortlist = Shortlist(KEY, [node(1), node(2)], me=ME)
    first = shortlist.choose_next()
    second = shortlist.choose_next()
    assert first is not None
    assert second is not None
    shortlist.note_answer(second.node_id)
    assert shortlist.choose_next() is None
    assert not shortlist.is_over
    shortlist.note_failure(first.node_id)
    assert shortlist.is_over


def test_nobody_known_means_over_at_once():
    assert Shortlist(KEY, [], me=ME).is_over


def test_newer_contact_counts_until_its_node_is_asked():
    shortlist = Shortlist(KEY, [node(1, sequence=3)], me=ME)
    shortlist.add([node(1, sequence=2), node(1, sequence=5)])
    chosen = shortlist.choose_next()
    assert chosen == node(1, sequence=5)
    shortlist.add([node(1, sequence=9)])
    assert shortlist.choose_next() is None


def test_node_does_not_ask_itself():
    assert Shortlist(KEY, [Candidate(ME, Endpoint("10.0.0.1", 1), SIGNED)], me=ME).is_over


def test_memory_is_bounded_and_the_nearest_stay():
    shortlist = Shortlist(KEY, map(node, range(500, 100, -1)), me=ME)
    shortlist.add([node(1)])
    assert run(shortlist, set(range(1, 1000)), {}) == [1, *range(101, 100 + MAX_CANDIDATES)]


@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.sets(st.integers(0, 39), max_size=20),
)
def test_lookup_ends_with_the_nearest_live_nodes_of_a_connected_net(
    seed: int, size: int, dead: set[int]
):
    """Each node knows the eight nearest to the key of those that live, as a table does."""
    rng = random.Random(seed)
    numbers = rng.sample(range(1, 2**16), size)
    dead_numbers = {numbers[i] for i in dead if i < size}
    live = sorted(number for number in numbers if number not in dead_numbers)
    knows = {number: rng.sample(live, min(len(live), 12)) + live[:BUCKET_SIZE] for number in live}
    start = rng.sample(numbers, min(size, 3)) + live[-1:]
    shortlist = Shortlist(KEY, map(node, start), me=ME)
    run(shortlist, dead_numbers, knows)
    found = [distance(candidate.node_id, KEY) for candidate in shortlist.closest()]
    assert found == live[:BUCKET_SIZE]
