"""`neuroswarm owner`: the key that may change a swarm's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.options import read_path
from neuroswarm.errors import ConfigError

app = typer.Typer(help="Make or look at the key that may change a swarm's rules.")

KeyFile = Annotated[
    Path,
    typer.Argument(help="File of the owner's private key.", parser=read_path, metavar="KEY_FILE"),
]


@app.callback(invoke_without_command=True)
def owner(context: typer.Context) -> None:
    """Make or look at the key that may change a swarm's rules."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def new(file: KeyFile) -> None:
    """Make an owner's key in a new file, and print its public half.

    Start the first node of the swarm with `--owner PUBLIC_KEY`; keep the file away from the nodes.
    """
    from neuroswarm.identity.node_key import NodeKey

    if file.exists():
        raise ConfigError(f"there is a file already: {file} (name a new one, or see `owner show`)")
    typer.echo(NodeKey.load_or_create(file).public_key.hex())


@app.command()
def show(file: KeyFile) -> None:
    """Print the public half of an owner's key."""
    from neuroswarm.identity.node_key import NodeKey

    if not file.exists():
        raise ConfigError(f"no such file: {file} (make one with `neuroswarm owner new`)")
    typer.echo(NodeKey.load_or_create(file).public_key.hex())
