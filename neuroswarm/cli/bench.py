"""`neuroswarm bench`: measure on this machine what the swarm promises."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli.bench_checkpoint import checkpoint
from neuroswarm.cli.bench_convergence import convergence
from neuroswarm.cli.bench_join import join
from neuroswarm.cli.bench_memory import memory
from neuroswarm.cli.bench_options import (
    DataOption,
    JobsOption,
    SeedsOption,
    choose_seeds,
    runs_beside,
    split_names,
)
from neuroswarm.cli.bench_rwkv import rwkv
from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report

if TYPE_CHECKING:
    from neuroswarm.bench.matrix import Selection
    from neuroswarm.bench.task import Task

app = typer.Typer(help="Measure on this machine what the swarm promises.")
app.command()(join)
app.command()(checkpoint)
app.command()(memory)
app.command()(rwkv)
app.command()(convergence)


Quick = Annotated[
    bool, typer.Option("--quick", help="One seed and three sets of rules, in some minutes.")
]
RuleSets = Annotated[
    str | None, typer.Option(help="Only these sets of rules, with commas.", show_default=False)
]
Attacks = Annotated[
    str | None,
    typer.Option("--attacks", help="Only these attacks, with commas.", show_default=False),
]
Rounds = Annotated[
    int | None,
    typer.Option(min=1, help="Rounds of each run, to try it out. Default: 20.", show_default=False),
]


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Measure on this machine what the swarm promises."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def attacks(
    *,
    json_path: JsonPath = None,
    quick: Quick = False,
    seeds: SeedsOption = None,
    rules: RuleSets = None,
    only: Attacks = None,
    jobs: JobsOption = None,
    rounds: Rounds = None,
    data: DataOption = None,
) -> int:
    """Train small models in swarms of which a quarter attacks, and compare the losses.

    The full benchmark takes about an hour on two cores. With --json, what is stopped goes on
    where it was, when the same is asked again: finished runs lie in FILE.runs until the end.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm bench attacks --json attacks.json

      neuroswarm bench attacks --quick --rules default,mean --attacks "sign flip,ALIE"
    """
    from rich.console import Console

    from neuroswarm.bench.attack_bench import Setup, run_attacks
    from neuroswarm.bench.display import make_display
    from neuroswarm.training.threads import choose_num_threads

    require_file(json_path)
    runs_path = runs_beside(json_path)
    setup = Setup(
        make_selection(quick=quick, seeds=seeds, rules=rules, attacks=only),
        make_task(rounds),
        num_processes=jobs or choose_num_threads(os.cpu_count() or 1),
        data=data,
        runs_path=runs_path,
    )
    console = Console()
    report = run_attacks(setup, make_display(console))
    write_report(json_path, report)
    if runs_path is not None:
        runs_path.unlink(missing_ok=True)
    _show(report, console.print)
    return conclude(report)


@app.command()
def table(
    report: Annotated[
        Path, typer.Argument(help="JSON file of `bench attacks` or `bench convergence`.")
    ],
) -> None:
    """Print the tables of a finished benchmark as Markdown."""
    from neuroswarm.bench import convergence_report, tables
    from neuroswarm.errors import ConfigError

    try:
        found = json.loads(report.read_text())
        is_convergence = found.get("benchmark") == convergence_report.NAME
        text = (convergence_report if is_convergence else tables).make_markdown(found)
    except FileNotFoundError as error:
        raise ConfigError(f"no such file: {report}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{report} is no report of `bench attacks` or `bench convergence`"
        ) from error
    typer.echo(text, nl=False)


def make_task(rounds: int | None) -> Task:
    """The benchmark's training, with so many rounds if they are given."""
    from neuroswarm.bench.task import Task

    return Task() if rounds is None else Task().with_rounds(Task().inner_steps, rounds)


def make_selection(
    *, quick: bool, seeds: str | None, rules: str | None, attacks: str | None
) -> Selection:
    """What the flags ask for; ConfigError if a seed is no number."""
    from neuroswarm.bench.matrix import REPORTED_SEEDS, Selection

    chosen = choose_seeds(seeds, REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS)
    return Selection(tuple(chosen), split_names(rules or ""), split_names(attacks or ""), quick)


def _show(report: dict[str, Any], show: Callable[..., None]) -> None:
    from neuroswarm.bench.tables import attack_rows, fact_lines, gossip_rows, make_table

    for rows in (attack_rows(report), gossip_rows(report)):
        if len(rows) > 1:
            show(make_table(rows))
    typer.echo("\n".join(filter(None, [report["left_out"], *fact_lines(report)])))
