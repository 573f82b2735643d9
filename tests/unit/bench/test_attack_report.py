"""The report and its promises on made-up results."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from neuroswarm.bench.attack_report import check_promises, summarise
from neuroswarm.bench.campaign import finite
from neuroswarm.bench.jobs import Result
from neuroswarm.bench.matrix import NO_ATTACK, Job
from neuroswarm.bench.tables import attack_rows, fact_lines, gossip_rows, make_markdown
from neuroswarm.bench.task import Task
from neuroswarm.diloco.rules import Rules

COUNTS = {"num_params": 9, "honest": 100, "honest_rejected": 0, "hostile": 40,
          "hostile_rejected": 10}  # fmt: skip
GOSSIP = {"rounds": 12, "rounds_equal": 12, "repairs": 0, "inner_steps": 100.0, "is_banned": True,
          "hostile_agreed": 3, "faults_fired": 8}  # fmt: skip


def result(
    arm: str, attack: str, loss: float, *, seed: int = 11, honest: int = 6, **details: Any
) -> Result[Job]:
    hostile = 0 if attack == NO_ATTACK else 2
    job = Job(arm, attack, seed, honest, hostile, Task(), Rules())
    return Result(job, loss, 1.0, {**(GOSSIP if job.is_gossip else COUNTS), **details})


def good() -> list[Result[Job]]:
    """Everything as promised: default 1.05 at worst, mean 2.5, sparse 1.02."""
    found = []
    for seed, shift in ((11, 0.0), (12, 0.02)):
        found += [
            result("default", NO_ATTACK, 2.0, seed=seed),
            result("default", "ALIE", 2.0 * (1.04 + shift), seed=seed),
            result("default", "IPM", 2.02, seed=seed),
            result("default", NO_ATTACK, 1.91, seed=seed, honest=8),
            result("mean", NO_ATTACK, 2.0, seed=seed),
            result("mean", "ALIE", 5.0, seed=seed),
            result("mean", "IPM", 2.1, seed=seed),
            result("mean", NO_ATTACK, 1.90, seed=seed, honest=8),
            result("sparse", NO_ATTACK, 3.0, seed=seed),
            result("sparse", "ALIE", 3.06, seed=seed),
            result("whole nodes", NO_ATTACK, 1.0, seed=seed),
            result("whole nodes", "equivocation", 1.01, seed=seed),
        ]
    return found


def broken(results: list[Result[Job]]) -> list[str]:
    return [promise.name for promise in check_promises(summarise(results)) if not promise.holds]


def changed(
    arm: str, attack: str, loss: float, *, honest: int = 6, **details: Any
) -> list[Result[Job]]:
    """The good results with others for one kind of run."""
    return [
        replace(r, loss=loss, details={**r.details, **details})
        if (r.job.arm, r.job.attack, r.job.num_honest) == (arm, attack, honest)
        else r
        for r in good()
    ]


def test_the_worst_ratio_is_the_worst_attack_of_the_means_over_seeds():
    report = summarise(good())
    assert math.isclose(report["default_worst_ratio"], 1.05)
    assert report["default_worst_attack"] == "ALIE"
    assert {s: round(r, 6) for s, r in report["default_worst_ratio_by_seed"].items()} == {
        11: 1.04,
        12: 1.06,
    }
    assert math.isclose(report["sparse_worst_ratio"], 1.02)
    assert math.isclose(report["default_clean_cost"], 1.91 / 1.90 - 1)
    assert report["mean_diverges_under"] == ["ALIE"]
    assert report["honest_rejected"] == {20: 0.0}


def test_nothing_is_broken_where_everything_holds():
    assert broken(good()) == []


def test_each_promise_can_break():
    assert broken(changed("default", "IPM", 2.17)) == ["default_worst_ratio"]
    assert broken(changed("whole nodes", "equivocation", 1.09)) == ["default_worst_ratio"]
    assert broken(changed("default", NO_ATTACK, 1.93, honest=8)) == ["default_clean_cost"]
    assert broken(changed("mean", "ALIE", 2.9)) == ["mean_diverges"]
    assert broken(changed("sparse", "ALIE", 3.1)) == ["sparse_worst_ratio"]
    spoiled = changed("default", NO_ATTACK, 1.91, honest=8, honest_rejected=1)
    assert broken(spoiled) == ["honest_rejected at H 20"]
    unequal = changed("whole nodes", "equivocation", 1.01, rounds_equal=10)
    assert broken(unequal) == ["digests_equal"]


def test_a_default_that_breaks_down_breaks_the_promise_and_can_be_written():
    report = summarise(changed("default", "ALIE", math.inf))
    assert [p.name for p in check_promises(report) if not p.holds] == ["default_worst_ratio"]
    written = json.loads(json.dumps(finite(report), allow_nan=False))
    assert written["default_worst_ratio"] is None
    assert attack_rows(written)[1][1] == "broke"


def test_a_mean_without_finite_loss_diverges():
    assert broken(changed("mean", "ALIE", math.inf)) == []


def test_what_was_not_measured_is_not_promised():
    alone = [result("median", NO_ATTACK, 2.0), result("median", "ALIE", 4.0)]
    report = summarise(alone)
    assert report["default_worst_ratio"] is None
    assert check_promises(report) == []
    assert fact_lines(report) == []


def test_tables_name_every_attack_and_arm():
    report = finite(summarise(good())) | {
        "task": Task().as_dict(),
        "versions": {"neuroswarm": "1", "torch": "2"},
        "seeds": [11, 12],
        "runtime_s": 60.0,
        "left_out": "",
    }
    assert attack_rows(report) == [
        ["attack", "default", "mean", "sparse"],
        ["ALIE", "1.050", "2.500", "1.020"],
        ["IPM", "1.010", "1.050", ""],
        ["loss, attackers absent", "2.000", "2.000", "3.000"],
    ]
    assert gossip_rows(report)[1] == ["equivocation", "1.010", "24 of 24", "0", "yes", "6"]
    text = make_markdown(report)
    assert "| ALIE | 1.050 | 2.500 | 1.020 |" in text
    assert "seeds 11, 12" in text
