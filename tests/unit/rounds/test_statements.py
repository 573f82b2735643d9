from __future__ import annotations

import pytest

from neuroswarm.errors import ProtocolViolation, SchemaMismatch
from neuroswarm.rounds.statements import MAX_PER_SIGNER, Register, check_proof, decode
from neuroswarm.testing.speaker import Speaker
from neuroswarm.wire.messages import Ballot, Confirm, Contribution, Ready, Skip
from neuroswarm.wire.signed import Kind, Signed

ANNA, BERT = Speaker("anna"), Speaker("bert")
ID = b"i" * 32


def note(register: Register, signed: Signed):
    return register.note(signed, decode(signed))


@pytest.mark.parametrize(
    ("signed", "kind"),
    [
        (ANNA.contribution(b"x"), Contribution),
        (ANNA.skip(), Skip),
        (ANNA.ready(), Ready),
        (ANNA.ballot([ID]), Ballot),
        (ANNA.confirm([ID]), Confirm),
    ],
)
def test_every_statement_of_a_round_is_read(signed: Signed, kind: type):
    assert isinstance(decode(signed), kind)


def test_a_heartbeat_is_no_statement_of_a_round():
    with pytest.raises(SchemaMismatch, match="heartbeat"):
        decode(ANNA.heartbeat()[0])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ANNA.contribution(b"x"), ANNA.contribution(b"y")),
        (ANNA.ballot(), ANNA.ballot([ID])),
        (ANNA.confirm(), ANNA.confirm([ID])),
    ],
    ids=["contribution", "ballot", "confirm"],
)
def test_two_statements_of_one_kind_about_one_round_convict(first: Signed, second: Signed):
    assert check_proof(first, second).signer == ANNA.node_id
    register = Register()
    assert note(register, first) is None
    assert note(register, first) is None, "said again is no second statement"
    proof = note(register, second)
    assert proof is not None
    assert (proof.first, proof.second) == (first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ANNA.ballot(), ANNA.ballot()),
        (ANNA.ballot(), BERT.ballot([ID])),
        (ANNA.ballot(), ANNA.confirm([ID])),
        (ANNA.ballot(), ANNA.about(1).ballot([ID])),
        (ANNA.ballot(), ANNA.about(0, b"b" * 32).ballot([ID])),
        (ANNA.ready(), ANNA.skip()),
        (ANNA.skip(), ANNA.skip()),
    ],
    ids=["same", "other signer", "other kind", "other round", "other base", "progress", "skips"],
)
def test_what_one_honest_signer_may_say_is_no_proof(first: Signed, second: Signed):
    with pytest.raises(ProtocolViolation, match="not a proof"):
        check_proof(first, second)
    register = Register()
    note(register, first)
    assert note(register, second) is None


def test_skips_that_differ_are_no_equivocation():
    register = Register()
    later = Skip(decode(ANNA.skip()).swarm_id, 0, bytes(32), 11)
    assert note(register, ANNA.skip()) is None
    assert register.note(ANNA.skip(), later) is None


def test_the_register_finds_first_statements_of_a_round():
    register = Register()
    for signed in (ANNA.confirm(), BERT.confirm([ID]), ANNA.ballot(), ANNA.about(1).confirm()):
        note(register, signed)
    note(register, ANNA.confirm([ID]))
    found = register.find(Kind.CONFIRM, 0, bytes(32))
    assert {s.signer: s.body for s in found} == {
        ANNA.node_id: ANNA.confirm().body,
        BERT.node_id: BERT.confirm([ID]).body,
    }
    assert register.find(Kind.CONFIRM, 0, b"b" * 32) == []


def test_the_register_forgets_old_rounds():
    register = Register()
    note(register, ANNA.confirm())
    note(register, ANNA.about(1).confirm())
    register.forget_before(1)
    assert register.find(Kind.CONFIRM, 0, bytes(32)) == []
    assert len(register.find(Kind.CONFIRM, 1, bytes(32))) == 1


def test_one_signer_fills_nothing_but_its_own_share():
    register = Register()
    for number in range(MAX_PER_SIGNER + 10):
        note(register, ANNA.about(number).confirm())
    assert register.find(Kind.CONFIRM, MAX_PER_SIGNER, bytes(32)) == []
    assert note(register, BERT.confirm()) is None
    assert register.find(Kind.CONFIRM, 0, bytes(32)) == [ANNA.confirm(), BERT.confirm()]
    late = ANNA.about(MAX_PER_SIGNER).confirm()
    assert not register.holds(late, decode(late))
    assert register.holds(BERT.confirm(), decode(BERT.confirm()))
    register.forget_before(10)
    note(register, late)
    assert register.holds(late, decode(late))


def test_strangers_together_fill_a_quarter():
    register = Register(max_statements=40)
    for number in range(100):
        stranger = Speaker(f"stranger {number}").confirm()
        register.note(stranger, decode(stranger), is_stranger=True)
    assert len(register.find(Kind.CONFIRM, 0, bytes(32))) == 10
    note(register, ANNA.confirm())
    assert register.holds(ANNA.confirm(), decode(ANNA.confirm()))


def test_the_register_is_bounded_in_bytes():
    size = len(ANNA.ballot([ID]).body)
    register = Register(max_bytes=2 * size)
    for speaker in (ANNA, BERT, Speaker("carl")):
        note(register, speaker.ballot([ID]))
    assert len(register.find(Kind.BALLOT, 0, bytes(32))) == 2
    register.forget_before(1)
    note(register, ANNA.about(1).ballot([ID]))
    assert len(register.find(Kind.BALLOT, 1, bytes(32))) == 1


def test_what_may_be_said_often_needs_no_room():
    assert Register(max_statements=0).holds(ANNA.ready(), decode(ANNA.ready()))


def test_a_full_register_takes_nothing_new_but_still_convicts():
    register = Register(max_statements=1)
    note(register, ANNA.confirm())
    assert note(register, BERT.confirm()) is None
    assert register.find(Kind.CONFIRM, 0, bytes(32)) == [ANNA.confirm()]
    assert note(register, ANNA.confirm([ID])) is not None
