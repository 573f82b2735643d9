from __future__ import annotations

from neuroswarm.membership.conduct import BAN_SCORE, WEIGHTS, Offence
from neuroswarm.membership.door import CallerLimits, Door
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.transport import Admission
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

ME, ALICE, BOB = (NodeId(name * 20) for name in (b"m", b"a", b"b"))
FEW = CallerLimits(calls_per_s=1.0, burst_calls=3.0, bytes_per_s=10.0, burst_bytes=100.0)


def make_door(caller_limits: CallerLimits | None = FEW) -> tuple[Door, PeerTable]:
    peers = PeerTable(ME, 5.0)
    return Door(peers, caller_limits), peers


def test_too_many_calls_are_refused_and_others_are_not():
    door, peers = make_door()
    verdicts = [door.admit(ALICE, 0, 0.0) for _ in range(5)]
    assert verdicts == [Admission.WELCOME] * 3 + [Admission.TOO_MUCH] * 2
    assert door.admit(BOB, 0, 0.0) is Admission.WELCOME
    assert door.admit(ALICE, 0, 1.0) is Admission.WELCOME
    assert door.num_floods == 2
    assert set(peers.conduct(0.0)) == {ALICE}


def test_too_many_bytes_are_refused():
    door, _ = make_door()
    assert door.admit(ALICE, 90, 0.0) is Admission.WELCOME
    assert door.admit(ALICE, 11, 0.0) is Admission.TOO_MUCH
    assert door.admit(ALICE, 20, 1.0) is Admission.WELCOME


def test_a_flood_is_noted_once_a_second_and_ends_in_a_ban():
    door, peers = make_door()
    for _ in range(1000):
        door.admit(ALICE, 0, 0.0)
    assert peers.conduct(0.0)[ALICE].counts == {Offence.FLOOD: 1}
    num_seconds = int(2 * BAN_SCORE / WEIGHTS[Offence.FLOOD])
    for second in range(1, num_seconds):
        for _ in range(10):
            door.admit(ALICE, 0, float(second))
    assert peers.is_banned(ALICE, float(num_seconds))
    assert door.admit(ALICE, 0, num_seconds + 2.0) is Admission.BANNED
    assert door.num_banned > 0


def test_a_swarm_of_a_thousand_passes_with_the_real_limits():
    """All that 1,000 peers may say in a round of 10 s, relayed by one caller, a push for each."""
    door, peers = make_door(None)
    now = 0.0
    for _ in range(10):
        for _ in range(1000):
            now += 0.01
            assert door.admit(ALICE, 64 * 1024, now) is Admission.WELCOME
    assert peers.conduct(now) == {}


def test_the_largest_message_fits_into_the_burst():
    assert CallerLimits().burst_bytes >= limits.MAX_MESSAGE_BYTES
