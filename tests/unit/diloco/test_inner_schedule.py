"""The learning rate is a function of the rules, the round and the step in it alone."""

from __future__ import annotations

import pytest

from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import inner_lr, plan_inner_steps

BASE = {"inner_lr": 0.5, "inner_steps": 10, "warmup_steps": 25}


def rates(rules: Rules, rounds: range, steps: int = 10) -> list[float]:
    return [inner_lr(rules, r, s) for r in rounds for s in range(steps)]


@pytest.mark.parametrize("schedule", ["constant", "cosine", "wsd"])
def test_the_warm_up_spans_rounds_and_happens_once_for_the_swarm(schedule: str):
    rules = Rules.model_validate({**BASE, "lr_schedule": schedule})
    found = rates(rules, range(5))
    assert found[:25] == pytest.approx([0.5 * (n + 1) / 25 for n in range(25)])
    assert found[25:] == [0.5] * 25
    assert inner_lr(rules, 500, 0) == 0.5  # a node that joins late


def test_a_peer_that_goes_beyond_the_round_stays_at_its_end():
    rules = Rules(**BASE)
    assert inner_lr(rules, 1, 11) == inner_lr(rules, 1, 999) == inner_lr(rules, 2, 0)


def test_the_cosine_falls_to_the_floor_and_stays_there():
    rules = Rules.model_validate(
        {**BASE, "warmup_steps": 0, "lr_schedule": "cosine", "schedule_rounds": 8, "lr_floor": 0.2}
    )
    found = rates(rules, range(12))
    assert found[0] == 0.5
    assert found[40] == pytest.approx(0.5 * (0.2 + 0.8 / 2))
    assert found[80:] == pytest.approx([0.1] * 40)
    assert found[:81] == sorted(set(found[:81]), reverse=True)


def test_wsd_is_stable_and_then_falls_straight():
    rules = Rules.model_validate(
        {**BASE, "warmup_steps": 0, "lr_schedule": "wsd", "schedule_rounds": 10,
         "decay_share": 0.4, "lr_floor": 0.0}
    )  # fmt: skip
    found = rates(rules, range(12))
    assert found[:61] == [0.5] * 61
    assert found[60:100] == pytest.approx([0.5 * (1 - n / 40) for n in range(40)])
    assert found[100:] == [0.0] * 20


def test_a_plan_names_the_optimiser_and_hands_out_the_same_rates():
    rules = Rules.model_validate({**BASE, "inner_optimizer": "muon"})
    plan = plan_inner_steps(rules, 2)
    assert plan.optimizer == "muon"
    assert [plan.lr(s) for s in range(12)] == [inner_lr(rules, 2, s) for s in range(12)]
