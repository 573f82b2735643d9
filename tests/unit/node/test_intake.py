"""What a node takes in: objective refusals, waiting statements, equivocators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from neuroswarm.codecs.registry import get_codec
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState, genesis
from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.intake import MAX_WAITING_PER_SIGNER, Cohort, Intake
from neuroswarm.rounds.agreement import Round
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.positions import Standing
from neuroswarm.rounds.statements import Proof, check_proof, decode
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.speaker import ARCHITECTURE, SWARM, Speaker
from neuroswarm.values import NodeId
from neuroswarm.wire.messages import Contribution
from neuroswarm.wire.signed import Kind, Signed

RULES = Rules(codec_block=16)
SHAPE = (("body", 40), ("head", 8))
CODEC = get_codec(RULES.codec, RULES.codec_block)
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

    def __post_init__(self) -> None:
        self.crowd = Crowd(PeerTable(ME.node_id, 5.0), SWARM, FakeClock())
        self.intake = Intake(
            Cohort(SWARM, ARCHITECTURE, SHAPE),
            self.crowd,
            want=lambda contribution, holder: self.wanted.append((contribution, holder)),
            wake=self.wake,
            max_archive_bytes=10**6,
        )
        self.round = self.begin(GENESIS, History(0, GENESIS.digest))

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
    door.tell(speaker().confirm(ids))
    door.tell(speaker("bert").confirm([b"j" * 32]))
    assert history.since(0)[0].signers == {speaker().node_id}


# -- waiting -------------------------------------------------------------------------


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


def test_old_rounds_are_forgotten():
    door, signed = Door(), speaker().contribution(*PAYLOADS)
    door.tell(signed)
    door.intake.forget_before(1)
    assert door.intake.archive.get(signed.id) is None
    assert door.intake.register.find(Kind.CONTRIBUTION, 0, GENESIS.digest) == []
