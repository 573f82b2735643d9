"""Makes many runs: one by one in this process, or several at once in others.

Knows how a job becomes a result somewhere; refuses to know what jobs and results are about.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ComputeError


class AnyJob(Protocol):
    """A run to make: a frozen dataclass of JSON values but for its rules."""

    @property
    def rules(self) -> Rules:
        """The swarm's."""
        ...


JobType = TypeVar("JobType", bound=AnyJob)


@dataclass(frozen=True, slots=True)
class Result(Generic[JobType]):
    """What came of a job."""

    job: JobType
    loss: float
    """Held out, nats per byte, at the end; infinite if the run broke."""
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    """Other measures, JSON values."""


def run_all(
    run: Callable[[JobType, Path | None], Result[JobType]],
    jobs: Sequence[JobType],
    *,
    one_by_one: Sequence[JobType] = (),
    num_processes: int,
    data: Path | None = None,
) -> Iterator[Result[JobType]]:
    """Make all runs, each in one of so many processes with one thread; results as they come.

    Args:
        run: Makes one, on the text of a path; a function of a module.
        jobs: Those that may run beside others.
        one_by_one: Those that come first, with nothing beside them.
        num_processes: 1 uses this process.
        data: Text file or folder; None takes the built-in text.

    Raises:
        ComputeError: A process died.
    """
    if num_processes == 1:
        _prepare_thread()
        for job in (*one_by_one, *jobs):
            yield run(job, data)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_processes, mp_context=context, initializer=_prepare_process)
    try:
        for job in one_by_one:
            yield pool.submit(run, job, data).result()
        waiting = {pool.submit(run, job, data) for job in jobs}
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
