"""`neuroswarm deploy compose`: several nodes on one machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    IMAGE,
    Confirmed,
    DryRun,
    File,
    Image,
    Operator,
    Yes,
    packaged,
    require_name,
)
from neuroswarm.cli.options import read_path

app = typer.Typer(help="Run several nodes on this machine with docker compose, for development.")


@app.callback(invoke_without_command=True)
def compose(context: typer.Context) -> None:
    """Run several nodes on this machine with docker compose, for development."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many.", min=1)] = 2,
    image: Image = IMAGE,
    build: Annotated[
        Path | None,
        typer.Option(
            "--build",
            help="Build the image first, from this folder of sources.",
            parser=read_path,
            metavar="CONTEXT",
            show_default=False,
        ),
    ] = None,
    file: File = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Start nodes that find each other, or change their number.

    Examples:
      neuroswarm deploy compose up --nodes 4 --build .

      neuroswarm deploy compose up --nodes 2
    """
    from neuroswarm.deployment.compose_plan import plan_up

    steps = plan_up(file or packaged("compose.yml"), image, nodes, context=build)
    Operator(dry_run, yes).carry_out(steps)


@app.command()
def down(
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Delete what they trained too.")
    ] = False,
    confirmed: Confirmed = None,
    file: File = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """End them; what they trained stays in a volume unless --volumes.

    Examples:
      neuroswarm deploy compose down
    """
    from neuroswarm.deployment.compose_plan import PROJECT, plan_down

    steps = plan_down(file or packaged("compose.yml"), with_volumes=volumes)
    if volumes and not dry_run:
        require_name(PROJECT, confirmed, map(str, steps))
    Operator(dry_run, yes or volumes).carry_out(steps)
