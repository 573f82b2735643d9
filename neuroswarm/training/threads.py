"""How many threads torch should use on this machine, and work beside the training.

Knows nothing of what they will do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.priority import add_niceness
from neuroswarm.hardware.processor import read_processor_share

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = 5
"""How much the thread that trains stands back for the node's other threads."""


def choose_num_threads(limit: int, root: Path = ROOT) -> int:
    """The number of threads: at most `limit`, one a physical core, within affinity and quota.

    More threads than the processor time of a container allows make training many times slower,
    and a second thread on one core gains nothing in dense arithmetic.

    Args:
        limit: What the user allows, at least 1.
        root: What stands for `/`; affinity and cores are this machine's anyway.
    """
    return min(limit, read_processor_share(root).num_cores)


def limit_torch(num_threads: int) -> None:
    """Have torch use so many threads in one operation, wherever it has not been used yet.

    Operations are never run side by side here, so one thread is enough for that.
    """
    torch.set_num_threads(num_threads)
    with contextlib.suppress(RuntimeError):  # it was used before: the number is settled
        torch.set_num_interop_threads(1)


def stand_back() -> None:
    """Let other threads and programs go first when there is less processor time than work.

    For the calling thread and those that it starts; Linux only. With four nodes on two cores
    it takes a fifth off the time from the last publication of a round to its outcome, as
    nothing that peers wait for queues behind their training.
    """
    add_niceness(NICENESS)


async def run_beside(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run torch work in a worker thread, on that thread alone.

    torch counts threads for each thread that calls it. One that was not told takes all cores,
    and operations that wait at a barrier for cores which train take seconds instead of tens of
    milliseconds. Threads that use torch for the first time after this get one thread as well.

    Cancellation: the job runs to its end; its result is lost.
    """

    def alone() -> T:
        torch.set_num_threads(1)
        return job(*args, **kwargs)

    return await asyncio.to_thread(alone)
