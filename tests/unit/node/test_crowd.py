"""Whose voice counts, as this node sees its peers."""

from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.crowd import Crowd
from neuroswarm.rounds.history import History
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.speaker import SWARM, Speaker

ME, ALICE, BOB, INVENTED = (Speaker(name) for name in ("me", "alice", "bob", "invented"))
RULES = Rules()


def crowd_of(*peers: Speaker) -> tuple[Crowd, PeerTable]:
    clock = FakeClock()
    table = PeerTable(ME.node_id, 5.0)
    for peer in peers:
        table.observe(*peer.heartbeat(), clock.monotonic(), host_seen=None)
    crowd = Crowd(table, SWARM, clock, mute_after_s=30.0)
    crowd.update_positions()
    return crowd, table


def state(*contributors: Speaker) -> OuterState:
    agreed = [(speaker.node_id, bytes(32)) for speaker in contributors]
    table = applied.add({}, 0, agreed)
    return OuterState(0, (), table, RULES, bytes(32))


def test_made_up_signers_support_no_lineage():
    crowd, _ = crowd_of(ALICE)
    here = state(BOB)
    counted = [who for who in (ME, ALICE, BOB, INVENTED) if crowd.is_counted(who.node_id, here)]
    assert counted == [ME, ALICE, BOB]


def test_a_banned_signer_supports_nothing_however_well_known():
    crowd, _ = crowd_of(ALICE)
    crowd.ban(ALICE.node_id, "equivocation")
    assert not crowd.is_counted(ALICE.node_id, state(ALICE))


def test_voters_are_live_training_peers_of_this_lineage_and_this_node_if_it_votes():
    crowd, _ = crowd_of(ALICE, BOB)
    history = History(0, bytes(32))
    voting = crowd.electorate(
        history, state(), with_me=True, steps_wanted=50, silent=frozenset({INVENTED.node_id})
    )
    assert voting.live == {ME.node_id, ALICE.node_id, BOB.node_id}
    assert voting.silent == frozenset()
    onlooking = crowd.electorate(
        history, state(), with_me=False, steps_wanted=50, silent=frozenset()
    )
    assert onlooking.live == {ALICE.node_id, BOB.node_id}
    elsewhere = History(0, bytes([1]) * 32)
    assert crowd.electorate(
        elsewhere, state(), with_me=True, steps_wanted=50, silent=frozenset()
    ).live == {ME.node_id}


def test_strangers_are_live_peers_of_other_swarms():
    crowd, table = crowd_of(ALICE)
    assert crowd.strangers() == []
    elsewhere = Crowd(table, bytes(32), FakeClock(), mute_after_s=30.0)
    assert [peer.node_id for peer in elsewhere.strangers()] == [ALICE.node_id]
    assert elsewhere.live() == []


def test_preferred_sources_come_first():
    crowd, _ = crowd_of(ALICE, BOB)
    assert crowd.sources(BOB.node_id)[0].node_id == BOB.node_id
    assert crowd.sources(ALICE.node_id, BOB.node_id)[0].node_id == ALICE.node_id
