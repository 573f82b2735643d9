"""The convergence benchmark from beginning to end: plan, runs, report.

Refuses to know the command line.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from neuroswarm.bench.campaign import describe_campaign, find_versions, finite, make_runs
from neuroswarm.bench.convergence_arms import ARMS
from neuroswarm.bench.convergence_plan import NUM_PEERS, Arm, Selection, plan
from neuroswarm.bench.convergence_report import check_promises, summarise
from neuroswarm.bench.convergence_run import run_convergence_job
from neuroswarm.bench.display import Display
from neuroswarm.bench.finished_runs import FinishedRuns
from neuroswarm.bench.jobs import run_all
from neuroswarm.bench.promise import tell


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run, on what and how."""

    selection: Selection = field(default_factory=Selection)
    arms: Sequence[Arm] = ARMS
    num_processes: int = 1
    data: Path | None = None
    """Text to train on; None: this Python's standard library."""
    runs_path: Path | None = None
    """Where finished runs are kept until there is a report; a benchmark that was stopped goes on
    from there."""


def run_convergence(setup: Setup, display: Display) -> dict[str, Any]:
    """Make all runs and the report of them, JSON values.

    Raises:
        ConfigError: An arm of that name does not exist; the finished runs are unreadable.
        DataError: There is no text.
        ComputeError: A process died.
    """
    started_at = time.monotonic()
    jobs = plan(setup.selection, setup.arms)
    finished = FinishedRuns(setup.runs_path, [find_versions(), str(setup.data)])
    run = partial(run_all, run_convergence_job, num_processes=setup.num_processes, data=setup.data)
    results, num_taken_over = make_runs("convergence", jobs, run, finished, display)
    size = setup.selection.size
    report = summarise(results)
    report |= {
        "quick": setup.selection.is_quick,
        "seeds": list(setup.selection.seeds),
        "peers": NUM_PEERS,
        "steps_per_peer": size.steps,
        "tokens_per_peer": size.steps * size.task.batch_size * size.task.context,
        "times_lr": setup.selection.times_lr,
        "task": size.task.as_dict(),
    }
    report |= describe_campaign(
        results,
        data=setup.data,
        num_processes=setup.num_processes,
        num_taken_over=num_taken_over,
        started_at=started_at,
    )
    report["promises"] = tell(check_promises(report), display.say)
    finite_report: dict[str, Any] = finite(report)
    return finite_report
