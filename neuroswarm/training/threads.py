"""How many threads torch should use on this machine, and work beside the training.

Knows nothing of what they will do.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil
import torch

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = 5
"""How much the thread that trains stands back for the node's other threads."""

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def choose_num_threads(limit: int, *, quota_file: Path = CPU_QUOTA) -> int:
    """The number of threads: at most `limit`, one a physical core, within affinity and quota.

    More threads than the processor time of a container allows make training many times slower,
    and a second thread on one core gains nothing in dense arithmetic.

    Args:
        limit: What the user allows, at least 1.
        quota_file: Where the control group says how much processor time there is; Linux only.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    physical = psutil.cpu_count(logical=False)
    bounds = [limit, allowed or 1, physical or limit, _quota(quota_file) or limit]
    return max(1, min(bounds))


def stand_back() -> None:
    """Let other threads and programs go first when there is less processor time than work.

    For the calling thread and those that it starts; Linux only. With four nodes on two cores
    it takes a fifth off the time from the last publication of a round to its outcome, as
    nothing that peers wait for queues behind their training.
    """
    if sys.platform == "linux":
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + NICENESS)


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


def _quota(path: Path) -> int | None:
    """Whole processors that the control group allows; None without a limit."""
    try:
        quota, period = path.read_text().split()[:2]
        return int(quota) // int(period) or 1
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no control groups, or "max": no limit
