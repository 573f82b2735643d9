from __future__ import annotations

from neuroswarm.membership.peer_table import Peer
from neuroswarm.node.joining import choose_donors
from neuroswarm.testing.speaker import Speaker

COMMON, RARE, OTHER = b"c" * 32, b"r" * 32, b"o" * 32


def peer(name: str, round_: int, digest: bytes) -> Peer:
    speaker = Speaker(name, round_=round_, base=digest)
    signed, heartbeat = speaker.heartbeat()
    return Peer(speaker.node_id, heartbeat, signed, last_seen_s=0.0)


def test_the_state_that_most_peers_hold_is_downloaded_from_one_of_them():
    holders = [peer("a", 5, COMMON), peer("b", 9, RARE), peer("c", 5, COMMON)]
    digest, donors = choose_donors(holders)
    assert digest == COMMON
    assert {donor.node_id for donor in donors} == {
        Speaker("a").node_id,
        Speaker("c").node_id,
    }


def test_the_newest_of_equally_common_states_is_taken():
    digest, (donor,) = choose_donors([peer("a", 5, OTHER), peer("b", 6, COMMON)])
    assert digest == COMMON
    assert donor.node_id == Speaker("b").node_id


def test_every_node_breaks_a_tie_alike():
    holders = [peer("a", 5, OTHER), peer("b", 5, COMMON)]
    assert choose_donors(holders)[0] == choose_donors(holders[::-1])[0] == max(OTHER, COMMON)
