"""Whose voice counts, as this node sees its peers."""

import pytest

from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import (
    BadSignature,
    NonFiniteValues,
    PeerError,
    SchemaMismatch,
    WrongPayload,
)
from neuroswarm.membership.conduct import BAN_SCORE, WEIGHTS, Offence
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.crowd import Crowd
from neuroswarm.rounds.history import History
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.speaker import SWARM, Speaker
from neuroswarm.values import NodeId

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


# -- conduct -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "offence"),
    [
        (BadSignature("x"), Offence.BAD_SIGNATURE),
        (WrongPayload("x"), Offence.WRONG_PAYLOAD),
        (NonFiniteValues("x"), Offence.NON_FINITE),
        (SchemaMismatch("x"), Offence.MALFORMED),
    ],
)
def test_what_no_honest_peer_passes_on_is_counted_until_it_is_too_much(
    error: PeerError, offence: Offence
):
    crowd, table = crowd_of(ALICE, BOB)
    needed = -(-int(BAN_SCORE) // int(WEIGHTS[offence]))
    for _ in range(needed - 1):
        crowd.misbehaved(ALICE.node_id, error)
    assert not crowd.is_banned(ALICE.node_id)
    assert table.conduct(0.0)[ALICE.node_id].counts == {offence: needed - 1}
    crowd.misbehaved(ALICE.node_id, error)
    assert crowd.is_banned(ALICE.node_id)
    assert not crowd.is_banned(BOB.node_id)


def test_claims_above_what_the_heartbeats_allow_are_counted():
    clock, table = FakeClock(), PeerTable(ME.node_id, 5.0)
    crowd = Crowd(table, SWARM, clock, mute_after_s=30.0)
    table.observe(*ALICE.heartbeat(tokens_per_s=100.0), clock.monotonic(), host_seen=None)
    crowd.check_claim(ALICE.node_id, ALICE.header(b"payload", tokens=10**9))
    assert not table.conduct(0.0), "nobody knows since when it has trained"
    crowd.check_claim(ALICE.node_id, ALICE.header(b"payload", tokens=2000, inner_steps=50))
    assert not table.conduct(0.0), "its rate allows that"
    crowd.check_claim(ALICE.node_id, ALICE.header(b"payload", tokens=10**9, inner_steps=50))
    assert table.conduct(0.0)[ALICE.node_id].counts == {Offence.IMPLAUSIBLE_CLAIM: 1}
    crowd.check_claim(INVENTED.node_id, INVENTED.header(b"payload", tokens=10**9))
    assert INVENTED.node_id not in table.conduct(0.0), "nothing is known of it to compare with"


def test_expelled_nodes_are_refused_for_as_long_as_the_rules_say_so():
    crowd, _ = crowd_of(ALICE, BOB)
    crowd.expel(frozenset({ALICE.node_id}))
    assert crowd.is_banned(ALICE.node_id)
    assert [peer.node_id for peer in crowd.live()] == [BOB.node_id]
    crowd.expel(frozenset())
    assert not crowd.is_banned(ALICE.node_id)


async def test_a_peer_that_lives_by_heartbeats_only_is_no_voter_after_a_while():
    clock, table = FakeClock(), PeerTable(ME.node_id, 1e6)
    crowd = Crowd(table, SWARM, clock, mute_after_s=30.0)
    for who in (ALICE, BOB):
        table.observe(*who.heartbeat(inner_steps=60), clock.monotonic(), host_seen=None)
    crowd.update_positions()

    def voters() -> frozenset[NodeId]:
        found = crowd.electorate(
            History(0, bytes(32)), state(), with_me=True, steps_wanted=50, silent=frozenset()
        )
        return found.live

    assert voters() == {ME.node_id, ALICE.node_id, BOB.node_id}
    crowd.voices.heard(BOB.node_id, 0)
    await clock.advance(31.0)
    assert voters() == {ME.node_id, BOB.node_id}
    crowd.voices.heard(ALICE.node_id, 0)
    assert voters() == {ME.node_id, ALICE.node_id, BOB.node_id}


def test_peers_are_counted_by_where_they_have_stood_for_long():
    here, there = bytes([1]) * 32, bytes([2]) * 32
    clock = FakeClock()
    table = PeerTable(ME.node_id, 5.0)
    for name, round_, digest in (("level", 0, here), ("apart", 0, there), ("ahead", 1, there)):
        heartbeat = Speaker(name, round_=round_, base=digest).heartbeat(digest=digest)
        table.observe(*heartbeat, clock.monotonic(), host_seen=None)
    crowd = Crowd(table, SWARM, clock, mute_after_s=30.0)
    crowd.update_positions()
    history = History(0, here)
    assert crowd.count_sides(history, patience_s=1.0) == (1, 0)
    clock.stop(1.0)
    assert crowd.count_sides(history, patience_s=1.0) == (1, 2)
