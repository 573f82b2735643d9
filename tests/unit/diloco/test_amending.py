"""The owner's amendments: which may follow which rules, and what a round makes of them."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from neuroswarm.diloco.amending import amend, describe_changes, propose, read_amendment
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.errors import BadSignature, ProtocolViolation, SchemaMismatch
from neuroswarm.testing.speaker import SWARM, Speaker
from neuroswarm.wire import limits
from neuroswarm.wire.messages import Amendment
from neuroswarm.wire.signed import Kind, Signed, sign

OWNER, MALLORY = Speaker("owner"), Speaker("mallory")
RULES = Rules(owner=OWNER.key.public_key.hex())
NEXT = RULES.model_copy(update={"revision": 1, "inner_steps": 200})
STATE = genesis(RULES, bytes(32), [("body", torch.zeros(4))])
ID = "ab" * 20


def proposal(rules: Rules = NEXT, by: Speaker = OWNER, swarm: bytes = SWARM) -> Signed:
    return propose(swarm, rules, by.key)


def test_the_owner_changes_the_rules():
    assert read_amendment(proposal(), SWARM, RULES) == NEXT
    assert amend(STATE, [proposal()], SWARM, STATE).rules == NEXT
    assert amend(STATE, [], SWARM, STATE) is STATE


def test_the_digest_covers_the_new_rules():
    assert amend(STATE, [proposal()], SWARM, STATE).digest != STATE.digest


@pytest.mark.parametrize(
    ("signed", "error"),
    [
        (proposal(by=MALLORY), BadSignature),
        (proposal(swarm=bytes(32)), ProtocolViolation),
        (proposal(RULES), ProtocolViolation),
        (proposal(NEXT.model_copy(update={"revision": 2})), ProtocolViolation),
        (sign(Kind.AMENDMENT, Amendment(SWARM, b"{}").encode(), OWNER.key), SchemaMismatch),
        (sign(Kind.AMENDMENT, Amendment(SWARM, b"junk").encode(), OWNER.key), SchemaMismatch),
        (OWNER.ballot(), ProtocolViolation),
    ],
    ids=["not the owner", "other swarm", "replay", "too far", "no rules", "junk", "no amendment"],
)
def test_what_may_not_follow_changes_nothing(signed: Signed, error: type[Exception]):
    with pytest.raises(error):
        read_amendment(signed, SWARM, RULES)
    assert amend(STATE, [signed], SWARM, STATE) is STATE


def test_a_swarm_without_an_owner_keeps_its_rules():
    with pytest.raises(BadSignature, match="no owner"):
        read_amendment(proposal(), SWARM, Rules())


def test_of_two_amendments_the_same_one_holds_in_any_order():
    other = NEXT.model_copy(update={"inner_steps": 300})
    both = [proposal(), proposal(other)]
    found = {amend(STATE, order, SWARM, STATE).rules for order in (both, both[::-1])}
    assert len(found) == 1
    assert found <= {NEXT, other}


def test_an_owner_may_hand_over():
    handed = NEXT.model_copy(update={"owner": MALLORY.key.public_key.hex()})
    after = amend(STATE, [proposal(handed)], SWARM, STATE)
    last = handed.model_copy(update={"revision": 2})
    assert read_amendment(proposal(last, by=MALLORY), SWARM, after.rules) == last
    with pytest.raises(BadSignature):
        read_amendment(proposal(last), SWARM, after.rules)


def test_changes_are_told_by_name():
    assert describe_changes(RULES, NEXT) == ["inner_steps 500 -> 200"]
    expelling = RULES.model_copy(update={"expelled": (ID,)})
    assert describe_changes(RULES, expelling) == ["expelled none -> abababab"]
    assert describe_changes(RULES, RULES) == ["nothing"]


def test_rules_name_nodes_in_order_and_not_too_many():
    assert {node.hex() for node in Rules(expelled=(ID,)).expelled_ids} == {ID}
    for bad in ((ID, ID), ("b" * 40, "a" * 40), ("xyz",), (ID.upper(),)):
        with pytest.raises(ValidationError):
            Rules(expelled=bad)
    many = tuple(f"{n:040x}" for n in range(limits.MAX_EXPELLED + 1))
    with pytest.raises(ValidationError):
        Rules(expelled=many)
    full = Rules(expelled=many[:-1], owner="f" * 64)
    assert len(full.to_bytes()) <= limits.MAX_RULES_BYTES
    assert Rules.from_bytes(full.to_bytes()) == full


@pytest.mark.parametrize("owner", ["f" * 63, "F" * 64, "z" * 64])
def test_an_owner_is_a_key_in_hex(owner: str):
    with pytest.raises(ValidationError):
        Rules(owner=owner)
