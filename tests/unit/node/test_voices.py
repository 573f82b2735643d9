"""Who lives by heartbeats only, and says nothing in rounds."""

from __future__ import annotations

from neuroswarm.membership.peer import Peer
from neuroswarm.node.voices import RECENT_ROUNDS, STANDSTILL, Voices
from neuroswarm.testing.speaker import Speaker

ANNA = Speaker("anna")
PATIENCE_S = 30.0
STEPS = 50


def at(inner_steps: int, sequence: int = 1) -> Peer:
    signed, heartbeat = ANNA.heartbeat(sequence, inner_steps=inner_steps)
    return Peer(ANNA.node_id, heartbeat, signed, 0.0)


def test_a_peer_that_has_its_steps_and_says_nothing_is_mute_after_the_patience():
    voices = Voices(PATIENCE_S)
    assert not voices.is_mute(at(STEPS), 5, STEPS, 100.0)
    assert not voices.is_mute(at(2 * STEPS), 5, STEPS, 100.0 + PATIENCE_S - 1)
    assert voices.is_mute(at(3 * STEPS), 5, STEPS, 100.0 + PATIENCE_S)


def test_a_slow_peer_that_still_takes_its_steps_is_not_mute():
    voices = Voices(PATIENCE_S)
    for minute in range(STEPS):
        assert not voices.is_mute(at(minute), 5, STEPS, 60.0 * minute)


def test_a_peer_that_takes_no_steps_is_mute_much_later():
    voices = Voices(PATIENCE_S)
    assert not voices.is_mute(at(7), 5, STEPS, 0.0)
    assert not voices.is_mute(at(7), 5, STEPS, STANDSTILL * PATIENCE_S - 1)
    assert voices.is_mute(at(7), 5, STEPS, STANDSTILL * PATIENCE_S)


def test_whoever_was_heard_lately_is_not_mute():
    voices = Voices(PATIENCE_S)
    voices.is_mute(at(STEPS), 5, STEPS, 0.0)
    voices.heard(ANNA.node_id, 5)
    assert not voices.is_mute(at(STEPS), 5 + RECENT_ROUNDS, STEPS, 1e6)
    later = 6 + RECENT_ROUNDS
    assert not voices.is_mute(at(STEPS), later, STEPS, 1e6), "the patience begins anew"
    assert voices.is_mute(at(STEPS), later, STEPS, 1e6 + PATIENCE_S)
    voices.heard(ANNA.node_id, later)
    assert not voices.is_mute(at(STEPS), later, STEPS, 1e6 + PATIENCE_S)


def test_peers_that_are_gone_are_forgotten():
    voices = Voices(PATIENCE_S)
    voices.heard(ANNA.node_id, 5)
    voices.forget_all_but([])
    voices.is_mute(at(STEPS), 5, STEPS, 0.0)
    assert voices.is_mute(at(STEPS), 5, STEPS, PATIENCE_S)
