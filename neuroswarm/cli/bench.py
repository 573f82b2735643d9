"""`neuroswarm bench`: measure on this machine what the swarm promises."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli.bench_checkpoint import checkpoint
from neuroswarm.cli.bench_join import join
from neuroswarm.cli.bench_memory import memory
from neuroswarm.cli.bench_rwkv import rwkv
from neuroswarm.cli.bench_speeds import speeds
from neuroswarm.cli.reports import JsonPath, conclude, require_file, write_report

if TYPE_CHECKING:
    from neuroswarm.bench.matrix import Selection
    from neuroswarm.bench.task import Task

app = typer.Typer(help="Measure on this machine what the swarm promises.")
app.command()(join)
app.command()(checkpoint)
app.command()(memory)
app.command()(rwkv)
app.command()(speeds)


Quick = Annotated[
    bool, typer.Option("--quick", help="One seed and three sets of rules, in some minutes.")
]
Seeds = Annotated[
    str | None,
    typer.Option(help="Seeds, with commas. Default: 11,12,13; 11 if quick.", show_default=False),
]
RuleSets = Annotated[
    str | None, typer.Option(help="Only these sets of rules, with commas.", show_default=False)
]
Attacks = Annotated[
    str | None,
    typer.Option("--attacks", help="Only these attacks, with commas.", show_default=False),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at once. Default: one a core.", show_default=False),
]
Rounds = Annotated[
    int | None,
    typer.Option(min=1, help="Rounds of each run, to try it out. Default: 20.", show_default=False),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Text file or folder to train on. Default: this Python's library source.",
        show_default=False,
    ),
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
    seeds: Seeds = None,
    rules: RuleSets = None,
    only: Attacks = None,
    jobs: Jobs = None,
    rounds: Rounds = None,
    data: Data = None,
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
    runs_path = None if json_path is None else json_path.with_name(f"{json_path.name}.runs")
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
    report: Annotated[Path, typer.Argument(help="JSON file of `neuroswarm bench attacks`.")],
) -> None:
    """Print the tables of a finished benchmark as Markdown."""
    from neuroswarm.bench.tables import make_markdown
    from neuroswarm.errors import ConfigError

    try:
        found = json.loads(report.read_text())
        text = make_markdown(found)
    except FileNotFoundError as error:
        raise ConfigError(f"no such file: {report}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{report} is no report of `neuroswarm bench attacks`") from error
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
    from neuroswarm.errors import ConfigError

    chosen: Sequence[int] = REPORTED_SEEDS[:1] if quick else REPORTED_SEEDS
    if seeds is not None:
        try:
            chosen = [int(text) for text in _split(seeds)]
        except ValueError as error:
            raise ConfigError(f"--seeds {seeds}: whole numbers with commas are needed") from error
        if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
            raise ConfigError(f"--seeds {seeds}: at least one, none twice or below 0")
    return Selection(tuple(chosen), _split(rules or ""), _split(attacks or ""), quick)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _show(report: dict[str, Any], show: Callable[..., None]) -> None:
    from neuroswarm.bench.tables import attack_rows, fact_lines, gossip_rows, make_table

    for rows in (attack_rows(report), gossip_rows(report)):
        if len(rows) > 1:
            show(make_table(rows))
    typer.echo("\n".join(filter(None, [report["left_out"], *fact_lines(report)])))
