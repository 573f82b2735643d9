"""Makes the runs of the attack benchmark.

Knows how a job becomes a result; refuses to know what results mean.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from neuroswarm.bench.adversary import CRAFTS, Adversary
from neuroswarm.bench.gossip_run import run_gossip
from neuroswarm.bench.jobs import Result, run_all
from neuroswarm.bench.matrix import GOSSIP_ROUNDS, LABEL_FLIP, NO_ATTACK, Job
from neuroswarm.bench.task import load_text
from neuroswarm.bench.training_run import Crew, make_peers, peer_id, run_training


def run_job(job: Job, data: Path | None = None) -> Result[Job]:
    """Make one run.

    Args:
        job: Which.
        data: Text file or folder; None takes the built-in text.
    """
    started_at = time.monotonic()
    loss, details = _whole_nodes(job) if job.is_gossip else _training(job, data)
    return Result(job, loss, time.monotonic() - started_at, details)


def run_jobs(
    jobs: Sequence[Job],
    *,
    num_processes: int,
    data: Path | None = None,
) -> Iterator[Result[Job]]:
    """Make all runs, each in one of so many processes with one thread; results as they come.

    Runs of whole nodes come first and one at a time, since their nodes keep deadlines.

    Raises:
        ComputeError: A process died.
    """
    return run_all(
        run_job,
        [job for job in jobs if not job.is_gossip],
        one_by_one=[job for job in jobs if job.is_gossip],
        num_processes=num_processes,
        data=data,
    )


def _training(job: Job, data: Path | None) -> tuple[float, dict[str, Any]]:
    text = load_text(data, job.task.context)
    honest = make_peers(job.task, text, job.rules, job.seed, range(job.num_honest))
    parts = range(job.num_honest, job.num_honest + job.num_hostile)
    if job.attack == NO_ATTACK:
        crew = Crew(honest)
    elif job.attack == LABEL_FLIP:
        misled = make_peers(job.task, text, job.rules, job.seed, parts, flips=True)
        crew = Crew(honest, misled)
    else:
        ids = [peer_id(part) for part in parts]
        crew = Crew(honest, adversary=Adversary(CRAFTS[job.attack], ids, job.seed))
    record = run_training(job.task, job.rules, crew)
    names = ("num_params", "honest", "honest_rejected", "hostile", "hostile_rejected", "reasons")
    details = {name: getattr(record, name) for name in names}
    details["losses"] = [loss if math.isfinite(loss) else None for loss in record.losses]
    return record.loss, details


def _whole_nodes(job: Job) -> tuple[float, dict[str, Any]]:
    record = run_gossip(
        None if job.attack == NO_ATTACK else job.attack,
        seed=job.seed,
        num_honest=job.num_honest,
        num_hostile=job.num_hostile,
        rounds=GOSSIP_ROUNDS,
    )
    details = dataclasses.asdict(record)
    return details.pop("loss"), details
