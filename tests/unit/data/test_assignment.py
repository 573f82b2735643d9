"""Who holds which shards: an order of each node's own, cut where its room ends."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import pytest

from neuroswarm.data.assignment import Room, ShardSize, plan_shards, rank_shards
from neuroswarm.values import NodeId

HASHES = [hashlib.sha256(bytes([i])).digest() for i in range(40)]
CORPUS = [ShardSize(10, False)] * 40 + [ShardSize(10, True)] * 3
EVERYTHING = range(43)
HELD_OUT = {40, 41, 42}


def node(number: int) -> NodeId:
    return NodeId(hashlib.sha256(b"node%d" % number).digest()[:20])


def plan(
    room: int, *, given: Collection[int] = (), obtainable: Collection[int] = EVERYTHING,
    at_most: int | None = None, number: int = 0,
) -> list[int]:  # fmt: skip
    order = rank_shards(HASHES, node(number), 0)
    bounds = Room(room, room if at_most is None else at_most)
    return plan_shards(CORPUS, order, given=given, obtainable=obtainable, room=bounds)


def test_the_order_is_a_permutation_of_its_own_for_every_node_and_rotation():
    orders = [rank_shards(HASHES, node(n), rotation) for n in range(4) for rotation in range(3)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len(set(map(tuple, orders))) == 12
    assert orders[0] == rank_shards(HASHES, node(0), 0)


def test_nodes_with_room_for_a_quarter_hold_nearly_everything_together():
    held = [set(plan(100 + 20, number=n)) - HELD_OUT for n in range(16)]
    assert {len(part) for part in held} == {10}
    counts = [sum(index in part for part in held) for index in range(40)]
    assert sum(count > 0 for count in counts) >= 38, "a share of 0.75^16 = 1 % is left out"
    assert max(counts) <= 10, "no shard is with nearly everybody"


def test_a_held_out_shard_and_one_to_train_on_come_first():
    order = rank_shards(HASHES, node(0), 0)
    assert plan(1000)[:2] == [40, order[0]]
    assert plan(20) == [40, order[0]]


def test_as_many_as_fit_and_held_out_ones_take_a_tenth_beside_the_first():
    order = rank_shards(HASHES, node(0), 0)
    assert plan(95) == [40, *order[:8]]
    assert plan(115) == [40, *order[:9], 41]
    assert sum(CORPUS[i].num_bytes for i in plan(115)) <= 115
    assert sorted(plan(430)) == list(EVERYTHING)


def test_space_kept_for_checkpoints_gives_way_to_the_first_two_alone():
    order = rank_shards(HASHES, node(0), 0)
    assert plan(-50, at_most=25) == [40, order[0]]
    assert plan(0, at_most=1000) == [40, order[0]]
    assert plan(-50, at_most=15) == [40], "one of both is of no use, but it may come to be"
    assert plan(-50, at_most=5) == []


def test_what_nobody_has_is_passed_over():
    order = rank_shards(HASHES, node(0), 0)
    without = set(EVERYTHING) - {40, order[0], order[2]}
    assert plan(40, obtainable=without) == [41, order[1], order[3], order[4]]


def test_what_is_given_takes_no_room_and_need_not_be_fetched():
    order = rank_shards(HASHES, node(0), 0)
    assert plan(20, given={40, order[0]}) == [order[1], order[2]]
    assert plan(1000, given=EVERYTHING) == []


def test_a_shard_that_is_too_large_is_passed_over():
    sizes = [ShardSize(100, False), ShardSize(10, False), ShardSize(10, True)]
    room = Room(50, 50)
    assert plan_shards(sizes, [0, 1], given=(), obtainable={0, 1, 2}, room=room) == [2, 1]


@pytest.mark.parametrize("rotation", [0, 2**64 - 1])
def test_every_rotation_number_has_an_order(rotation: int):
    assert len(rank_shards(HASHES, node(0), rotation)) == 40
