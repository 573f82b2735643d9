from __future__ import annotations

import random

import pytest

from neuroswarm.membership.fanout import fanout
from neuroswarm.rounds.spread import Seen, choose_targets, hops_after
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire import limits


def peers(count: int) -> list[PeerAddress]:
    return [
        PeerAddress(NodeId(n.to_bytes(20, "big")), Endpoint("10.0.0.1", n)) for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 10, 100])
def test_the_fanout_is_reached_without_those_to_avoid(count: int):
    everyone = peers(count)
    avoid = {peer.node_id for peer in everyone[: count // 10]}
    targets = choose_targets(everyone, avoid, random.Random(0))
    assert len(targets) == len(set(targets)) == min(fanout(count), count - len(avoid))
    assert avoid.isdisjoint(peer.node_id for peer in targets)


def test_all_peers_get_their_turn():
    chosen = {
        peer for seed in range(60) for peer in choose_targets(peers(40), (), random.Random(seed))
    }
    assert chosen == set(peers(40))


@pytest.mark.parametrize(
    ("received", "left"), [(0, None), (-1, None), (1, 0), (2, 1), (99, limits.MAX_HOPS - 1)]
)
def test_hops_run_out_whatever_a_peer_claims(received: int, left: int | None):
    assert hops_after(received) == left


def test_seen_ids_are_remembered_and_the_oldest_forgotten():
    seen = Seen(max_ids=2)
    assert seen.add(b"a")
    assert not seen.add(b"a")
    assert seen.add(b"b")
    assert seen.add(b"c")
    assert b"a" not in seen
    assert b"b" in seen
    assert b"c" in seen
