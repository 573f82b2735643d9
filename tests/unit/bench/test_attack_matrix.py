"""Which runs are planned."""

from __future__ import annotations

import pytest

from neuroswarm.bench.matrix import (
    ARMS,
    EVERY_ATTACK,
    NO_ATTACK,
    Arm,
    Job,
    Selection,
    describe_selection,
    plan,
)
from neuroswarm.bench.task import Task
from neuroswarm.errors import ConfigError


def count(jobs: list[Job], arm: str, attack: str) -> int:
    return sum((job.arm, job.attack) == (arm, attack) for job in jobs)


def test_the_full_plan_has_every_attack_for_default_mean_and_sparse_on_three_new_seeds():
    jobs = plan(Selection(), Task())
    for arm in ("default", "mean", "sparse"):
        assert [count(jobs, arm, attack) for attack in EVERY_ATTACK] == [3] * len(EVERY_ATTACK)
    assert {job.seed for job in jobs}.isdisjoint({1, 2, 3})
    assert len(set(jobs)) == len(jobs)
    assert {arm.name for arm in ARMS} <= {job.arm for job in jobs}


def test_every_attacked_run_has_one_without_attackers_to_compare_with():
    jobs = plan(Selection(), Task())
    absent = {(j.arm, j.seed, j.num_honest) for j in jobs if j.attack == NO_ATTACK}
    assert {(j.arm, j.seed, j.num_honest) for j in jobs if j.attack != NO_ATTACK} <= absent


def test_a_new_rule_is_one_line():
    jobs = plan(Selection(seeds=(4,)), Task(), [Arm("new", {"use_nnm": False})])
    new = [job for job in jobs if job.arm == "new"]
    assert [job.rules.use_nnm for job in new] == [False] * 4


def test_quick_leaves_out_other_rules_and_says_so():
    selection = Selection(seeds=(11,), is_quick=True)
    jobs = plan(selection, Task())
    assert count(jobs, "median", NO_ATTACK) == 0
    assert count(jobs, "whole nodes", "equivocation") == 1
    said = describe_selection(selection)
    assert "median" in said
    assert "all seeds but 11" in said
    assert describe_selection(Selection()) == ""


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown rules: 'madian' \(one of default, mean"):
        plan(Selection(arms=("madian",)), Task())
    with pytest.raises(ConfigError, match="unknown attacks: 'bribe'"):
        plan(Selection(attacks=("bribe",)), Task())
