"""`neuroswarm deploy compose`: several nodes on one machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.deploy_operator import (
    Confirmed,
    DryRun,
    File,
    Operator,
    Yes,
    packaged,
    require_confirmation,
)
from neuroswarm.cli.deploy_stack import StackImage, read_stack_files
from neuroswarm.cli.options import read_path
from neuroswarm.errors import ConfigError

app = typer.Typer(help="Run several nodes on this machine with docker compose, for development.")


@app.callback(invoke_without_command=True)
def compose(context: typer.Context) -> None:
    """Run several nodes on this machine with docker compose, for development."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many.", min=1)] = 2,
    image: StackImage = None,
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
    from neuroswarm.deployment.compose_plan import plan_up, require_sources

    if build is not None and file is None:
        require_sources(build)
    elif build is not None and not build.is_dir():
        raise ConfigError(f"nothing to build from: there is no folder {build}")
    used_file = file or packaged("compose.yml")
    context = None if build is None else str(build.resolve())
    given = {"IMAGE": image, "CONTEXT": context}
    used = read_stack_files([used_file], given, is_stack=False)
    Operator(dry_run, yes).carry_out(plan_up(used_file, used, nodes, builds=build is not None))


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
    from neuroswarm.deployment.stack_file import require_file

    if file is not None:
        require_file("compose file", file)
    steps = plan_down(file or packaged("compose.yml"), with_volumes=volumes)
    require_confirmation(PROJECT, confirmed, map(str, steps), deletes=volumes, is_dry_run=dry_run)
    Operator(dry_run, yes or volumes).carry_out(steps)
