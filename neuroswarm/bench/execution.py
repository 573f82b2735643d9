"""Makes the runs of the attack benchmark: one by one in a process, many at once in several.

Knows how a job becomes a result; refuses to know what results mean.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from neuroswarm.bench.adversary import CRAFTS, Adversary
from neuroswarm.bench.gossip_run import run_gossip
from neuroswarm.bench.matrix import GOSSIP_ROUNDS, LABEL_FLIP, NO_ATTACK, Job
from neuroswarm.bench.task import load_text
from neuroswarm.bench.training_run import Crew, make_peers, peer_id, run_training
from neuroswarm.errors import ComputeError


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a job."""

    job: Job
    loss: float
    """Held out, nats per byte, at the end; infinite if the run broke."""
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    """Other measures, JSON values: counts of `Record`, or fields of `GossipRecord`."""


def run_job(job: Job, data: Path | None = None) -> Result:
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
) -> Iterator[Result]:
    """Make all runs, each in one of so many processes with one thread; results as they come.

    Runs of whole nodes come first and one at a time, since their nodes keep deadlines.

    Raises:
        ComputeError: A process died.
    """
    if num_processes == 1:
        _prepare_thread()
        for job in jobs:
            yield run_job(job, data)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_prepare_process)
    try:
        for job in jobs:
            if job.is_gossip:
                yield pool.submit(run_job, job, data).result()
        waiting = {pool.submit(run_job, job, data) for job in jobs if not job.is_gossip}
        for future in as_completed(waiting):
            yield future.result()
    except BrokenProcessPool as error:
        raise ComputeError("a process of the benchmark died (too little memory?)") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the runs
    _prepare_thread()


def _prepare_thread() -> None:
    torch.set_num_threads(1)


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
