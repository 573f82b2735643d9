"""Whom a download turns to first."""

from __future__ import annotations

from neuroswarm.membership.peer import Peer
from neuroswarm.node.donors import Candidates
from neuroswarm.testing.speaker import Speaker

WANTED, LATER = b"w" * 32, b"l" * 32


def peer(name: str, digest: bytes, saturation: float = 0.0) -> Peer:
    speaker = Speaker(name, round_=5, base=digest)
    signed, heartbeat = speaker.heartbeat(network_saturation=saturation)
    return Peer(speaker.node_id, heartbeat, signed, last_seen_s=0.0)


def names(candidates: Candidates, peers: list[Peer]) -> list[int]:
    known = [p.node_id for p in peers]
    return [known.index(address.node_id) for address in candidates()]


def test_holders_come_first_and_those_without_a_state_not_at_all():
    peers = [peer("a", LATER), peer("b", WANTED, 0.95), peer("c", WANTED), peer("d", b"")]
    for seed in range(9):
        assert names(Candidates(lambda: peers, WANTED, seed=seed), peers) == [2, 1, 0]


def test_a_holder_that_moves_on_stays_a_holder():
    peers = [peer("a", WANTED), peer("b", LATER)]
    candidates = Candidates(lambda: peers, WANTED, seed=0)
    assert names(candidates, peers) == [0, 1]
    peers[0] = peer("a", LATER)
    assert names(candidates, peers) == [0, 1]


def test_a_peer_that_is_known_to_hold_the_state_comes_first():
    peers = [peer("a", LATER), peer("b", LATER)]
    candidates = Candidates(lambda: peers, WANTED, known={peers[1].node_id}, seed=0)
    assert names(candidates, peers) == [1, 0]


def test_joiners_spread_over_the_holders():
    peers = [peer(f"peer {k}", WANTED) for k in range(4)]
    firsts = {names(Candidates(lambda: peers, WANTED, seed=seed), peers)[0] for seed in range(40)}
    assert firsts == {0, 1, 2, 3}


def test_the_order_stays_for_one_download():
    peers = [peer(f"peer {k}", WANTED) for k in range(9)]
    candidates = Candidates(lambda: peers, WANTED)
    assert candidates() == candidates()
