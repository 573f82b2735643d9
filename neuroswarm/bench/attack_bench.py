"""The attack benchmark from beginning to end: plan, runs, report.

Refuses to know the command line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from neuroswarm.bench.attack_report import check_promises, summarise
from neuroswarm.bench.campaign import describe_campaign, find_versions, finite, make_runs
from neuroswarm.bench.display import Display
from neuroswarm.bench.execution import run_jobs
from neuroswarm.bench.finished_runs import FinishedRuns
from neuroswarm.bench.matrix import ARMS, Arm, Selection, describe_selection, plan
from neuroswarm.bench.task import Task
from neuroswarm.diloco.rules import Rules


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run, on what and how."""

    selection: Selection = field(default_factory=Selection)
    task: Task = field(default_factory=Task)
    arms: Sequence[Arm] = ARMS
    num_processes: int = 1
    data: Path | None = None
    """Text to train on; None: this Python's standard library."""
    runs_path: Path | None = None
    """Where finished runs are kept until there is a report; a benchmark that was stopped goes on
    from there."""


def run_attacks(setup: Setup, display: Display) -> dict[str, Any]:
    """Make all runs and the report of them, JSON values.

    Raises:
        ConfigError: Rules or attacks of that name do not exist; the finished runs are unreadable.
        DataError: There is no text.
        ComputeError: A process died.
    """
    jobs = plan(setup.selection, setup.task, setup.arms)
    left_out = describe_selection(setup.selection, setup.arms)
    started_at = time.monotonic()
    finished = FinishedRuns(setup.runs_path, [find_versions(), str(setup.data)])
    run = partial(run_jobs, num_processes=setup.num_processes, data=setup.data)
    results, num_taken_over = make_runs("attacks", jobs, run, finished, display)
    order = {job: place for place, job in enumerate(_in_order(jobs, setup.arms))}
    results.sort(key=lambda result: order[result.job])
    report = summarise(results)
    report |= {
        "seeds": list(setup.selection.seeds),
        "left_out": left_out,
        "task": setup.task.as_dict(),
        "arms": {arm.name: dict(arm.rules) for arm in setup.arms},
        "default_rules": Rules().model_dump(mode="json"),
    }
    report |= describe_campaign(
        results,
        data=setup.data,
        num_processes=setup.num_processes,
        num_taken_over=num_taken_over,
        started_at=started_at,
    )
    report["promises"] = [
        {"name": p.name, "holds": p.holds, "said": p.said} for p in check_promises(report)
    ]
    finite_report: dict[str, Any] = finite(report)
    return finite_report


def _in_order(jobs: Sequence[Any], arms: Sequence[Arm]) -> list[Any]:
    """Jobs by arm and attack as the tables name them."""
    places = {arm.name: place for place, arm in enumerate(arms)}
    attacks = [attack for arm in arms for attack in arm.attacks]
    first = {attack: attacks.index(attack) for attack in set(attacks)}
    return sorted(
        jobs,
        key=lambda job: (
            places.get(job.arm, len(places)), first.get(job.attack, -1), job.seed, job.num_honest
        ),
    )  # fmt: skip
