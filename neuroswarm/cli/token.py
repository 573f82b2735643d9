"""`neuroswarm token`: make a swarm token, or see which one is in use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.options import read_path
from neuroswarm.cli.swarm_token import find_token
from neuroswarm.errors import AdmissionError

if TYPE_CHECKING:
    from neuroswarm.identity.token import SwarmToken

app = typer.Typer(help="Make or look at the secret that admits nodes to a swarm.")


@app.callback(invoke_without_command=True)
def token(context: typer.Context) -> None:
    """Make or look at the secret that admits nodes to a swarm."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def new(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write it to this new file, readable by you alone, and not to screen.",
            parser=read_path,
            metavar="PATH",
        ),
    ] = None,
) -> None:
    """Make a token for a new swarm and print it; keep it secret, give it to every node."""
    from neuroswarm.identity.token import SwarmToken

    made = SwarmToken.new()
    if out is None:
        typer.echo(made.text)
        return
    write_token(made, out)


def write_token(made: SwarmToken, out: Path) -> None:
    """Write a token to a new file, readable by its owner alone, and say where it is.

    Raises:
        AdmissionError: the file exists.
    """
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise AdmissionError(f"{out} exists already; a token in use is not replaced") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(made.text + "\n")
    typer.echo(f"token {made.fingerprint} is in {out}")


@app.command()
def show(
    token: Annotated[str | None, typer.Option(help="The token.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file that holds it.", parser=read_path, metavar="PATH"),
    ] = None,
) -> None:
    """Print the fingerprint of a token, which tells nothing of it: equal ones mean one swarm."""
    from neuroswarm.identity.token import SwarmToken

    text = find_token(token, token_file, os.environ)
    if text is None:
        raise AdmissionError(
            "no token: give --token or --token-file, or set NEUROSWARM_TOKEN "
            "(make one with `neuroswarm token new`)"
        )
    typer.echo(SwarmToken.parse(text).fingerprint)
