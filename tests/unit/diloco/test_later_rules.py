"""Rules that come later: what was agreed before keeps its bytes, and unknown rules are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import pytest
import torch
from pydantic import Field

from neuroswarm.diloco.later import Later
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.errors import NewerRules, SchemaMismatch

NEXT = 3


class NextRules(Rules):
    """The rules of a later version: another way is the default, the former one stays legal."""

    weighs_by_age: Annotated[bool, Later(since=NEXT, before=False)] = True
    most_old: Annotated[int, Later(since=NEXT + 1, before=0), Field(ge=0)] = 0


def test_rules_agreed_before_keep_bytes_and_digest_when_a_later_version_reads_them():
    old = Rules(outer_lr=0.5, krum_f=2)
    read = NextRules.from_bytes(old.to_bytes())
    assert read.to_bytes() == old.to_bytes()
    assert not read.weighs_by_age
    before = genesis(old, bytes(32), [("all", torch.ones(3))])
    assert replace(before, rules=read).digest == before.digest


def test_an_earlier_version_reads_what_a_later_one_writes_while_it_acts_as_before():
    later = NextRules(weighs_by_age=False, outer_lr=0.5)
    assert later.protocol == 1
    assert Rules.from_bytes(later.to_bytes()) == Rules(outer_lr=0.5)


def test_a_new_swarm_of_a_later_version_acts_by_its_rules_and_says_so():
    rules = NextRules()
    assert NextRules.from_bytes(rules.to_bytes()) == rules
    assert rules.protocol == NEXT
    assert NextRules(most_old=5).protocol == NEXT + 1
    assert rules.rules_hash != Rules().rules_hash


def test_an_earlier_version_refuses_rules_that_it_does_not_know_by_their_names():
    with pytest.raises(NewerRules, match=r"later version \(weighs_by_age\): upgrade neuroswarm"):
        Rules.from_bytes(NextRules().to_bytes())


def test_a_name_that_would_forge_a_line_of_the_log_is_shown_quoted():
    named = json.loads(Rules().to_bytes()) | {"x\nERROR forged": 1}
    data = json.dumps(named, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(NewerRules, match=r"later version \('x\\nERROR forged'\)"):
        Rules.from_bytes(data)


def test_an_earlier_version_refuses_a_choice_that_it_does_not_know():
    named = json.loads(Rules().to_bytes()) | {"codec": "int3"}
    data = json.dumps(named, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(NewerRules, match=r"codec 'int3'"):
        Rules.from_bytes(data)


def test_rules_have_one_form_so_that_equal_rules_have_equal_digests():
    named = json.loads(Rules().to_bytes()) | {"weighs_by_age": False}
    data = json.dumps(named, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SchemaMismatch, match="canonical"):
        NextRules.from_bytes(data)


def test_rules_of_the_first_version_are_always_named():
    missing = json.loads(Rules().to_bytes())
    del missing["outer_lr"]
    data = json.dumps(missing, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SchemaMismatch, match="canonical"):
        Rules.from_bytes(data)
