"""`neuroswarm bench convergence`: what a swarm gains over training alone, for how few bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.bench_options import (
    DataOption,
    JobsOption,
    SeedsOption,
    choose_seeds,
    runs_beside,
    split_names,
)
from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report

if TYPE_CHECKING:
    from neuroswarm.bench.convergence_plan import Selection


def convergence(
    *,
    json_path: JsonPath = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="One seed, a small model, the best schedules, in minutes."),
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Also all schedules that were tried.")
    ] = False,
    seeds: SeedsOption = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Only these arms, with semicolons.", show_default=False),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Inner steps of each peer, to try it out.", show_default=False),
    ] = None,
    times_lr: Annotated[
        float, typer.Option(min=0.01, max=100, help="Factor of all learning rates, to tune them.")
    ] = 1.0,
    jobs: JobsOption = None,
    data: DataOption = None,
) -> int:
    """Train one model alone, synchronously, and in swarms of 4 by many schedules, and compare.

    Given are held-out losses, how many times fewer bytes than an fp32 all-reduce at every step
    each peer sends, and the share of the gain over training alone that is kept. The full benchmark
    takes hours. With --json, what is stopped goes on where it was, when the same is asked again:
    finished runs lie in FILE.runs until the end.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm bench convergence --json convergence.json

      neuroswarm bench convergence --quick
    """
    from neuroswarm.bench.convergence_plan import REPORTED_SEEDS, Selection

    require_file(json_path)
    selection = Selection(
        choose_seeds(seeds, REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS),
        split_names(arms or "", ";"),
        is_quick=quick,
        is_search=search,
        steps=steps,
        times_lr=times_lr,
    )
    return _measure(selection, jobs, data, json_path)


def _measure(
    selection: Selection, num_jobs: int | None, data: Path | None, json_path: Path | None
) -> int:
    """Make the runs and their report; returns the exit code."""
    from rich.console import Console

    from neuroswarm.bench.convergence_bench import Setup, run_convergence
    from neuroswarm.bench.convergence_report import table_rows
    from neuroswarm.bench.display import make_display
    from neuroswarm.bench.tables import markdown_table
    from neuroswarm.training.threads import choose_num_threads

    runs_path = runs_beside(json_path)
    num_processes = num_jobs or choose_num_threads(os.cpu_count() or 1)
    setup = Setup(selection, num_processes=num_processes, data=data, runs_path=runs_path)
    report = run_convergence(setup, make_display(Console()))
    write_report(json_path, report)
    if runs_path is not None:
        runs_path.unlink(missing_ok=True)
    typer.echo(markdown_table(table_rows(report)))  # wider than many terminals: not cut
    return conclude(report)
