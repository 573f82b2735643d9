"""What benchmarks of many runs have in common: going on where they were, and what they ran on.

Refuses to know what is measured.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from neuroswarm.bench.display import Display
from neuroswarm.bench.finished_runs import FinishedRuns
from neuroswarm.bench.jobs import JobType, Result


def make_runs(
    title: str,
    jobs: Sequence[JobType],
    run: Callable[[Sequence[JobType]], Iterable[Result[JobType]]],
    finished: FinishedRuns,
    display: Display,
) -> tuple[list[Result[JobType]], int]:
    """Make the runs that are not finished yet, and keep and show each.

    Args:
        title: Of the benchmark.
        jobs: All of them.
        run: Makes those that are left, in any order.
        finished: Those of former tries; takes the new ones.
        display: Where it is shown.

    Returns:
        All results in any order, and how many of them were taken over.

    Raises:
        ConfigError: The finished runs are unreadable.
    """
    results = finished.load(jobs)
    num_taken_over = len(results)
    if results:
        display.say(f"{num_taken_over} runs are taken over from {finished.path}")
    done = {result.job for result in results}
    left = [job for job in jobs if job not in done]
    display.begin(title, len(left))
    try:
        for result in run(left):
            results.append(result)
            finished.add(result)
            display.advance(f"{result.job}: loss {result.loss:.4f}, {result.seconds:.0f} s")
    finally:
        display.end()
    return results, num_taken_over


def describe_campaign(
    results: Sequence[Result[Any]],
    *,
    data: Path | None,
    num_processes: int,
    num_taken_over: int,
    started_at: float,
) -> dict[str, Any]:
    """What reports say of how they came about, JSON values.

    Args:
        results: All of them.
        data: The text; None for this Python's standard library.
        num_processes: Runs at once.
        num_taken_over: Results of former tries.
        started_at: On the monotonic clock.
    """
    return {
        "data": "this Python's standard library" if data is None else str(data),
        "versions": find_versions(),
        "processes": num_processes,
        "runs": len(results),
        "runs_taken_over": num_taken_over,
        "runtime_s": time.monotonic() - started_at,
        "seconds_in_runs": sum(result.seconds for result in results),
    }


def find_versions() -> dict[str, str]:
    """Of what results hang on besides their jobs."""
    return {
        "neuroswarm": version("neuroswarm"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def finite(value: Any) -> Any:
    """The same JSON value with None for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
