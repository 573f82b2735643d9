"""What a node takes in: objective refusals, waiting statements, equivocators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from neuroswarm.codecs.registry import codec_of
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.amending import propose
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.intake import (
    MAX_PUBLISHERS,
    MAX_ROUNDS_AWAY,
    MAX_STRANGERS,
    MAX_STRANGERS_CONVICTED,
    MAX_WAITING,
    MAX_WAITING_PER_SIGNER,
    RETAINED_ROUNDS,
    STRANGERS_SHARE,
    Cohort,
    Intake,
)
from neuroswarm.rounds.agreement import Round
from neuroswarm.rounds.electorate import Electorate
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.phases import Action, Instant
from neuroswarm.rounds.positions import Standing
from neuroswarm.rounds.statements import MAX_PER_SIGNER, Proof, check_proof, decode
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.speaker import ARCHITECTURE, SWARM, Speaker
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import Contribution, decode_amendment
from neuroswarm.wire.signed import Kind, Signed

RULES = Rules(codec_block=16)
SHAPE = (("body", 40), ("head", 8))
CODEC = codec_of(RULES)
PAYLOADS = tuple(bytes(CODEC.packed_size(num_params)) for _, num_params in SHAPE)
GENESIS = genesis(RULES, ARCHITECTURE, [(name, torch.zeros(size)) for name, size in SHAPE])
ME, SENDER = Speaker("me"), NodeId(b"s" * 20)


def speaker(name: str = "anna", round_: int = 0, base: bytes = GENESIS.digest) -> Speaker:
    return Speaker(name, round_=round_, base=base)


@dataclass
class Door:
    """An intake, and what it asks for."""

    wanted: list[tuple[bytes, NodeId]] = field(default_factory=list)
    num_wakes: int = 0
    told: list[Signed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peers = PeerTable(ME.node_id, 5.0)
        self.crowd = Crowd(self.peers, SWARM, FakeClock(), mute_after_s=30.0)
        self.intake = Intake(
            Cohort(SWARM, ARCHITECTURE, SHAPE),
            self.crowd,
            want=lambda contribution, holder: self.wanted.append((contribution, holder)),
            wake=self.wake,
            tell=self.told.append,
            max_archive_bytes=10**6,
        )
        self.round = self.begin(GENESIS, History(0, GENESIS.digest))

    def know(self, *names: str) -> None:
        """Hear a heartbeat of each."""
        for name in names:
            self.peers.observe(*Speaker(name).heartbeat(), 0.0, host_seen=None)

    def wake(self) -> None:
        self.num_wakes += 1

    def begin(self, state: OuterState, history: History) -> Round:
        self.round = Round(ME.node_id, started_at=0.0, cfg=RoundConfig())
        self.intake.begin(self.round, state, history)
        return self.round

    def tell(self, signed: Signed) -> bool | Proof:
        return self.intake.on_statement(signed, decode(signed), SENDER)


# -- taken ---------------------------------------------------------------------------


def test_a_contribution_is_noted_and_its_payload_wanted_from_the_sender():
    door, signed = Door(), speaker().contribution(*PAYLOADS)
    assert door.tell(signed) is True
    assert door.round.publishers == {speaker().node_id: signed.id}
    assert door.wanted == [(signed.id, SENDER)]
    assert door.intake.archive.get(signed.id) is not None
    assert door.num_wakes == 1


def test_ballots_and_confirms_reach_the_round():
    door, ids = Door(), (b"i" * 32,)
    assert door.tell(speaker().ballot(ids)) is True
    assert door.tell(speaker().confirm(ids)) is True
    assert door.round.ballot_signers == {speaker().node_id}
    assert door.round.confirmers(ids) == {speaker().node_id}


def test_every_statement_says_where_its_signer_stands():
    door = Door()
    door.tell(speaker(round_=1, base=b"n" * 32).ready())
    history = door.intake.history
    assert history is not None
    assert door.crowd.positions.standing(speaker().node_id, history) is Standing.AHEAD


# -- refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payloads", "changes", "why"),
    [
        (PAYLOADS, {"architecture": b"a" * 32}, "another architecture"),
        (PAYLOADS, {"codec": "fp32"}, "codec"),
        (PAYLOADS, {"inner_steps": 0}, "no inner steps"),
        (PAYLOADS[:1], {}, "fragments"),
        ((*PAYLOADS, b"x"), {}, "fragments"),
        ((PAYLOADS[0] + b"x", PAYLOADS[1]), {}, "fragments"),
        ((PAYLOADS[1], PAYLOADS[0]), {}, "fragments"),
    ],
    ids=["architecture", "codec", "no steps", "fewer", "more", "size", "swapped"],
)
def test_contributions_that_do_not_fit_count_as_skips(
    payloads: tuple[bytes, ...], changes: dict[str, Any], why: str
):
    door, signed = Door(), speaker().contribution(*payloads, **changes)
    door.tell(signed)
    assert door.intake.counters["refused_contributions"] == 1
    assert door.peers.conduct(0.0)[speaker().node_id].counts == {Offence.MALFORMED: 1}
    assert door.wanted == []
    assert door.round.publishers == {}
    header = decode(signed)
    assert isinstance(header, Contribution)
    with pytest.raises(SchemaMismatch, match=why):
        door.intake.check_header(header, GENESIS)


def test_another_swarm_is_not_listened_to():
    door = Door()
    signed = speaker().contribution(*PAYLOADS, swarm_id=b"w" * 32)
    assert door.tell(signed) is False
    assert door.intake.counters["other_swarm"] == 1
    assert door.wanted == []


def test_the_banned_are_not_listened_to():
    door = Door()
    door.crowd.ban(speaker().node_id, "a test")
    assert door.tell(speaker().ballot()) is False
    assert door.round.ballot_signers == frozenset()


def test_rounds_that_are_over_or_far_ahead_are_not_taken():
    door = Door()
    assert door.tell(speaker(round_=3).ready()) is False, "more than two rounds ahead"
    base, after = GENESIS.digest, b"1" * 32
    history = History(0, base)
    history.append(FinishedRound(0, base, after, (), ()))
    state = OuterState(1, GENESIS.fragments, GENESIS.applied, RULES, ARCHITECTURE)
    door.begin(state, history)
    assert door.tell(speaker(round_=0).ballot()) is False
    assert door.intake.counters["stale"] == 2
    assert door.round.ballot_signers == frozenset()


def test_a_late_confirm_supports_the_finished_round():
    door, base, ids = Door(), GENESIS.digest, (b"i" * 32,)
    history = History(0, base)
    history.append(FinishedRound(0, base, b"1" * 32, ids, ()))
    door.begin(OuterState(1, GENESIS.fragments, GENESIS.applied, RULES, ARCHITECTURE), history)
    door.know("anna", "bert")
    door.tell(speaker().confirm(ids))
    door.tell(speaker("bert").confirm([b"j" * 32]))
    door.tell(speaker("stranger").confirm(ids))
    assert history.since(0)[0].signers == {speaker().node_id}


def test_what_is_said_of_rounds_far_away_is_not_remembered():
    door = Door()
    for round_ in (MAX_ROUNDS_AWAY + 1, 10**6, limits.MAX_COUNT):
        about = speaker(round_=round_)
        door.tell(about.ballot())
        assert door.intake.register.find(Kind.BALLOT, round_, GENESIS.digest) == []
    history = History(RETAINED_ROUNDS + 5, GENESIS.digest)
    state = OuterState(history.round, GENESIS.fragments, GENESIS.applied, RULES, ARCHITECTURE)
    door.begin(state, history)
    door.tell(speaker(round_=4).ballot())
    door.tell(speaker(round_=5).ballot())
    assert door.intake.register.find(Kind.BALLOT, 4, GENESIS.digest) == []
    assert len(door.intake.register.find(Kind.BALLOT, 5, GENESIS.digest)) == 1


def test_what_finds_no_room_in_the_register_does_not_count():
    """Otherwise a signer could say two things once its first one is not remembered."""
    door = Door()
    for number in range(MAX_PER_SIGNER):
        door.tell(speaker(base=number.to_bytes(32, "big")).ballot())
    assert door.tell(speaker().ballot()) is False
    assert door.intake.counters["too_many"] == 1
    assert door.round.ballot_signers == frozenset()
    assert door.tell(speaker("bert").ballot()) is True


def test_a_round_takes_no_more_contributions_than_a_ballot_can_list():
    door = Door()
    strangers = [speaker(f"stranger {n}") for n in range(MAX_PUBLISHERS // STRANGERS_SHARE + 5)]
    for stranger in strangers:
        door.tell(stranger.contribution(*PAYLOADS))
    assert len(door.round.publishers) == MAX_PUBLISHERS // STRANGERS_SHARE
    known = [f"peer {n}" for n in range(MAX_PUBLISHERS)]
    door.know(*known)
    for name in known:
        door.tell(speaker(name).contribution(*PAYLOADS))
    assert len(door.round.publishers) == MAX_PUBLISHERS
    for signer, contribution in door.round.publishers.items():
        door.round.held(signer, contribution)
    door.round.held(ME.node_id, ME.contribution(*PAYLOADS).id)
    for number in range(limits.MAX_AMENDMENTS + 1):
        door.round.heard_amendment(bytes([number]) * 32)
    assert len(door.round.ballot) == limits.MAX_SET
    decode(ME.ballot(door.round.ballot))


# -- waiting -------------------------------------------------------------------------


@pytest.mark.parametrize("say", [Speaker.ready, Speaker.skip, Speaker.seal])
def test_strangers_cannot_make_a_round_remember_ever_more_signers(say: Callable[[Speaker], Signed]):
    door = Door()
    door.know("anna")
    for index in range(MAX_STRANGERS):
        door.round.heard_ready(NodeId(index.to_bytes(20, "big")))
        door.round.heard_skip(NodeId(index.to_bytes(20, "big")))
        door.round.heard_seal(NodeId(index.to_bytes(20, "big")))
    assert not door.tell(say(speaker("one stranger more")))
    assert (door.intake.counters["too_many"], door.round.num_heard) == (1, MAX_STRANGERS)
    assert door.tell(say(speaker("anna"))), "who is known by a heartbeat is always noted"
    assert door.round.num_heard == MAX_STRANGERS + 1


def test_statements_about_the_next_round_wait_for_it():
    door = Door()
    state = OuterState(1, GENESIS.fragments, GENESIS.applied, RULES, ARCHITECTURE)
    signed = speaker(round_=1, base=state.digest).contribution(*PAYLOADS)
    assert door.tell(signed) is True
    assert door.wanted == []
    history = History(0, GENESIS.digest)
    history.append(FinishedRound(0, GENESIS.digest, state.digest, (), ()))
    door.begin(state, history)
    assert door.wanted == [(signed.id, SENDER)]
    assert door.round.publishers == {speaker().node_id: signed.id}


def test_what_is_said_on_another_lineage_waits_for_a_repair():
    door = Door()
    other = genesis(RULES, ARCHITECTURE, [(name, torch.ones(size)) for name, size in SHAPE])
    signed = speaker(base=other.digest).contribution(*PAYLOADS)
    assert door.tell(signed) is False, "no use to those who stand here"
    assert door.intake.counters["other_lineage"] == 1
    assert door.wanted == []
    door.begin(other, History(0, other.digest))
    assert door.wanted == [(signed.id, SENDER)]


def test_one_signer_cannot_fill_the_waiting_room():
    door = Door()
    for number in range(MAX_WAITING_PER_SIGNER):
        about = speaker(round_=1, base=bytes([number]) * 32)
        assert door.tell(about.ready()) is True
    assert door.tell(speaker(round_=1, base=b"x" * 32).ready()) is False
    assert door.intake.counters["not_kept"] == 1
    assert door.tell(speaker("bert", round_=1, base=b"x" * 32).ready()) is True


def test_strangers_cannot_fill_the_waiting_room():
    door = Door()
    for number in range(MAX_WAITING // STRANGERS_SHARE + 10):
        about = speaker(f"stranger {number // MAX_WAITING_PER_SIGNER}", round_=1)
        door.tell(about.about(1, number.to_bytes(32, "big")).ready())
    assert door.intake.counters["not_kept"] == 10
    door.know("anna")
    assert door.tell(speaker(round_=1, base=b"x" * 32).ready()) is True


# -- equivocators --------------------------------------------------------------------


def test_two_contributions_convict_and_nothing_of_the_signer_counts():
    door = Door()
    door.tell(speaker("bert").ballot())
    door.tell(speaker().ballot())
    door.tell(speaker().contribution(*PAYLOADS))
    proof = door.tell(speaker().contribution(*PAYLOADS, tokens=2))
    assert isinstance(proof, Proof)
    assert check_proof(proof.first, proof.second).signer == speaker().node_id
    assert door.crowd.is_banned(speaker().node_id)
    assert door.intake.counters["equivocators"] == 1
    assert door.round.confirmers(()) == frozenset()
    assert door.tell(speaker().confirm()) is False


def test_a_proof_from_elsewhere_bans_once():
    door = Door()
    proof = Proof(speaker().ballot(), speaker().ballot([b"i" * 32]))
    assert door.intake.on_proof(proof)
    assert not door.intake.on_proof(proof)
    assert door.crowd.is_banned(speaker().node_id)


def test_a_node_does_not_ban_itself():
    door = Door()
    mine = Speaker("me", base=GENESIS.digest)
    assert door.tell(mine.ballot()) is True
    assert door.tell(mine.ballot([b"i" * 32])) is False
    assert not door.crowd.is_banned(mine.node_id)


# -- payloads that come along --------------------------------------------------------


def test_an_inline_payload_is_kept_if_it_is_the_one_promised():
    door, signed = Door(), speaker().contribution(*PAYLOADS)
    door.intake.on_inline(signed.id, b"".join(PAYLOADS))
    assert door.intake.archive.get(signed.id) is None, "no header, no payload"
    door.tell(signed)
    with pytest.raises(ProtocolViolation, match="promised"):
        door.intake.on_inline(signed.id, b"another")
    door.intake.on_inline(signed.id, b"".join(PAYLOADS))
    assert door.intake.archive.payload(signed.id) == b"".join(PAYLOADS)
    door.intake.on_inline(signed.id, b"another")
    assert door.intake.archive.payload(signed.id) == b"".join(PAYLOADS)


def test_a_payload_that_came_along_is_held_and_of_a_late_header_not_wanted():
    door, signed = Door(), speaker().contribution(*PAYLOADS)
    door.tell(signed)
    door.wanted.clear()
    door.intake.on_inline(signed.id, b"".join(PAYLOADS))
    assert door.wanted == [(signed.id, speaker().node_id)], "to be decoded"


def test_a_header_that_comes_after_the_seal_is_kept_and_not_wanted():
    door = Door()
    door.round.skipped(0.0)
    alone = Electorate(frozenset({ME.node_id}))
    instant = Instant(0.0, alone, True, 0, 50, None, 0.0)
    assert door.round.poll(instant) is Action.SEND_SEAL
    signed = speaker().contribution(*PAYLOADS)
    assert door.tell(signed) is True, "others may have taken it"
    assert door.intake.counters["too_late"] == 1
    assert door.wanted == []
    assert door.round.publishers == {}
    assert door.intake.archive.get(signed.id) is not None


def test_whoever_brings_what_is_over_and_knows_it_is_noted():
    door = Door()
    far = RETAINED_ROUNDS + 5
    door.begin(replace(GENESIS, round=far), History(far, GENESIS.digest))
    door.peers.observe(*Speaker("late").heartbeat(round=0), 0.0, host_seen=None)
    door.peers.observe(*Speaker("sly").heartbeat(round=far), 0.0, host_seen=None)
    signed = speaker(round_=0).skip()
    for name in ("late", "sly"):
        statement = decode(signed)
        door.intake.on_statement(signed, statement, Speaker(name).node_id)
    assert set(door.peers.conduct(0.0)) == {Speaker("sly").node_id}
    assert door.peers.conduct(0.0)[Speaker("sly").node_id].counts == {Offence.REPLAY: 1}
    for _ in range(100):  # a link that was down brings many at once
        door.intake.on_statement(signed, decode(signed), Speaker("sly").node_id)
    assert not door.crowd.is_banned(Speaker("sly").node_id)


def test_a_proof_bans_for_good_whoever_is_banned_for_a_while():
    door = Door()
    door.know("mallory")
    mallory = Speaker("mallory", base=GENESIS.digest)
    door.peers.ban(mallory.node_id, "floods", 600.0)
    proof = check_proof(mallory.ballot(), mallory.ballot([b"i" * 32]))
    assert door.intake.on_proof(proof) is True
    assert door.crowd.is_banned_for_good(mallory.node_id)
    assert door.intake.on_proof(proof) is False, "no news"


def test_proofs_against_made_up_keys_fill_nothing():
    door = Door()
    liars = [speaker(f"liar {n}") for n in range(MAX_STRANGERS_CONVICTED + 1)]
    for liar in liars:
        door.intake.on_proof(check_proof(liar.ballot(), liar.ballot([b"i" * 32])))
    assert door.crowd.is_banned(liars[0].node_id)
    assert not door.crowd.is_banned(liars[-1].node_id)
    door.know("mallory")
    known = speaker("mallory")
    assert door.intake.on_proof(check_proof(known.ballot(), known.ballot([b"i" * 32]))) is True


def test_what_an_expelled_node_said_before_does_not_count_after():
    door, signed = Door(), speaker(round_=1, base=b"n" * 32).contribution(*PAYLOADS)
    door.tell(signed)
    rules = RULES.model_copy(update={"expelled": (speaker().node_id.hex(),)})
    later = replace(GENESIS, round=1, rules=rules)
    signed = Speaker("anna", round_=1, base=later.digest).contribution(*PAYLOADS)
    door.tell(signed)
    door.begin(later, History(1, later.digest))
    assert door.round.publishers == {}


def test_what_waited_is_not_measured_against_the_time_it_is_taken_up():
    door = Door()
    door.know("anna")
    later = replace(GENESIS, round=1)
    first = Speaker("anna", base=GENESIS.digest).contribution(*PAYLOADS)
    door.tell(first)
    waiting = Speaker("anna", round_=1, base=later.digest)
    door.tell(waiting.contribution(*PAYLOADS, tokens=10**12))
    door.begin(later, History(1, later.digest))
    assert door.round.publishers
    assert not door.peers.conduct(0.0)


# -- amendments ----------------------------------------------------------------------

OWNER = Speaker("owner")
OWNED = replace(GENESIS, rules=RULES.model_copy(update={"owner": OWNER.key.public_key.hex()}))


def amendment(revision: int = 1, by: Speaker = OWNER) -> Signed:
    rules = OWNED.rules.model_copy(update={"revision": revision, "inner_steps": 77})
    return propose(SWARM, rules, by.key)


def test_an_amendment_is_put_to_the_ballot_until_it_is_agreed():
    door, signed = Door(), amendment()
    door.begin(OWNED, History(0, OWNED.digest))
    assert door.intake.on_amendment(signed) is True
    assert door.intake.on_amendment(signed) is False, "no news"
    assert door.round.ballot == (signed.id,)
    later = replace(OWNED, round=1)
    door.begin(later, History(1, later.digest))
    assert door.round.ballot == (signed.id,), "it was not agreed yet"
    done = replace(OWNED, round=2, rules=Rules.from_bytes(decode_amendment(signed.body).rules))
    door.begin(done, History(2, done.digest))
    assert door.round.ballot == ()
    assert door.intake.pending_amendments() == []


def test_what_the_owner_brings_itself_is_spread():
    door, signed = Door(), amendment()
    door.begin(OWNED, History(0, OWNED.digest))
    door.intake.propose(signed)
    door.intake.propose(signed)
    assert door.told == [signed]
    for wrong in (amendment(2), amendment(by=speaker())):
        with pytest.raises(ProtocolViolation):
            door.intake.propose(wrong)
    assert door.told == [signed]


def test_old_rounds_are_forgotten():
    door, signed = Door(), speaker().contribution(*PAYLOADS)
    door.tell(signed)
    door.intake.forget_before(1)
    assert door.intake.archive.get(signed.id) is None
    assert door.intake.register.find(Kind.CONTRIBUTION, 0, GENESIS.digest) == []
