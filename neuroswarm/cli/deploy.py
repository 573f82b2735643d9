"""`neuroswarm deploy`: a fleet of machines with docker, from its first to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli import (
    deploy_compose,
    deploy_image,
    deploy_machines,
    deploy_removal,
    deploy_services,
    deploy_stack,
    deploy_status,
)
from neuroswarm.cli.deploy_operator import packaged
from neuroswarm.cli.options import read_path
from neuroswarm.cli.suggestions import Commands
from neuroswarm.errors import ConfigError

app = typer.Typer(
    help="Run neuroswarm on many machines with docker: a node on each, by one command.",
    epilog="Every verb takes --dry-run, which prints the docker commands and runs nothing. "
    "DOCKER_HOST and docker contexts say which engine. docs/deploy.md explains them all.",
)


@app.callback(invoke_without_command=True)
def deploy(context: typer.Context) -> None:
    """Run neuroswarm on many machines with docker: a node on each, by one command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def files(
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder to copy them to, which must not exist.",
            parser=read_path,
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command that copies; copy nothing.")
    ] = False,
) -> None:
    """Say where the Dockerfile, the stack files and the settings of all nodes are, or copy them.

    To change them copy them, edit node.toml or a stack file, and deploy with --file.

    Examples:
      neuroswarm deploy files --to fleet

      neuroswarm deploy deploy --file fleet/stack.yml --settings-version 2
    """
    import shlex
    import shutil

    source = packaged("")
    if to is None:
        typer.echo(str(source))
        return
    if to.exists():
        raise ConfigError(f"there is something already: {to} (name a new folder)")
    if not next(folder for folder in to.absolute().parents if folder.exists()).is_dir():
        raise ConfigError(f"no place for a folder: {to} is below a file (name another)")
    if dry_run:
        if not to.parent.exists():
            typer.echo(shlex.join(["mkdir", "-p", str(to.parent)]))
        typer.echo(shlex.join(["cp", "-r", str(source), str(to)]))
        return
    shutil.copytree(source, to)
    typer.echo(f"copied to {to}: {', '.join(sorted(path.name for path in to.iterdir()))}")


for _verb in (
    deploy_machines.init,
    deploy_machines.join,
    deploy_machines.label,
    deploy_image.build,
    deploy_image.push,
    deploy_stack.deploy,
    deploy_status.status,
    deploy_services.logs,
    deploy_services.scale,
    deploy_services.update,
    deploy_removal.remove,
    files,
):
    app.command()(_verb)
app.add_typer(deploy_compose.app, name="compose", cls=Commands)
