"""`neuroswarm config`: what the settings are and where they come from; files of settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from neuroswarm.cli.options import read_path

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings

app = typer.Typer(help="Show, begin and check settings.")

NEW_FILE = "neuroswarm.toml"


@app.callback(invoke_without_command=True)
def config(context: typer.Context) -> None:
    """Show, begin and check settings."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def show(
    context: typer.Context,
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say behind each where it comes from.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those that somebody has set.")
    ] = False,
) -> None:
    """Show the settings that `neuroswarm node` would have with the same flags, as TOML.

    Takes all flags of `neuroswarm node`, and reads the same variables and file. What is printed
    is a file for --config that gives the same settings.

    Examples:
      neuroswarm config show --origin --changed

      neuroswarm config show --origin --config node.toml --port 8000
    """
    from neuroswarm.config.toml import render_settings

    parameters = read_node_flags(context.args)
    merged = merge(parameters, os.environ)
    say: Callable[[str], str] = _origins(merged) if origin else lambda _path: ""
    if origin:
        typer.echo(f"# swarm token: {_find_token_origin(parameters, merged, os.environ)}")
    takes: Callable[[str], bool] = merged.origins.__contains__ if changed else lambda _path: True
    typer.echo(render_settings(merged.config, say, takes=takes), nl=False)


@app.command()
def init(
    file: Annotated[str, typer.Argument(help="File to write; - prints it.")] = NEW_FILE,
) -> None:
    """Write a file with all settings as comments: meaning, legal values and default of each."""
    from neuroswarm.config.toml import render_template
    from neuroswarm.errors import ConfigError

    if file == "-":
        typer.echo(render_template(), nl=False)
        return
    try:
        with read_path(file).open("x", encoding="utf-8") as new:
            new.write(render_template())
    except FileExistsError as error:
        raise ConfigError(
            f"there is a file already: {file} (name a new one, or print it with "
            "`neuroswarm config init -`)"
        ) from error
    typer.echo(f"wrote {file}: change it, then `neuroswarm config check {file}`")


@app.command()
def check(
    file: Annotated[
        Path, typer.Argument(help="TOML file with settings.", parser=read_path, metavar="FILE")
    ],
) -> None:
    """Say whether a node would take the settings of a file; exit code 78 if not.

    Neither flags nor variables are looked at.
    """
    from neuroswarm.values import counted

    merged = merge({"config": file}, {})
    typer.echo(f"{file}: {counted(len(merged.origins), 'setting')}, nothing wrong")
    if network := merged.config.network.token_file:
        typer.echo(f"the swarm's token comes from {network}")


def read_node_flags(arguments: list[str]) -> Mapping[str, Any]:
    """Values of the flags of `neuroswarm node`, by name; a usage error for others."""
    return parse_node_flags(arguments, "neuroswarm config show").params


def parse_node_flags(arguments: list[str], command: str) -> typer.Context:
    """The same with the flags themselves (`.command.params`); `command` is who asks."""
    from typer.main import get_command

    from neuroswarm.cli import node

    alone = typer.Typer(add_completion=False)
    alone.command()(node.node)
    return cast("typer.Context", get_command(alone).make_context(command, list(arguments)))


def merge(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """The settings of a node with these flags and variables, but for free ports.

    Raises:
        ConfigError: one of them is not legal, or they do not fit together.
    """
    from neuroswarm.cli import settings as merging
    from neuroswarm.cli.addresses import require_addresses
    from neuroswarm.cli.node import read_layers, require_an_end, wish_ports
    from neuroswarm.cli.ports import require_different

    merged = merging.resolve(read_layers(parameters, environment))
    require_addresses(merged)
    require_an_end(merged)
    require_different(wish_ports(merged))
    return merged


def _origins(merged: Settings) -> Callable[[str], str]:
    return lambda path: merged.origins.get(path, "default")


def _find_token_origin(
    parameters: Mapping[str, Any], merged: Settings, environment: Mapping[str, str]
) -> str:
    """Where the token comes from, never what it is; AdmissionError where a node refuses it."""
    from neuroswarm.cli.swarm_token import (
        TOKEN_FILE_VARIABLE,
        TOKEN_VARIABLE,
        check_token,
        find_token,
    )

    configured = merged.config.network.token_file
    text = find_token(
        parameters.get("token"), parameters.get("token_file"), environment, configured
    )
    if text is None:
        return "none, the swarm is open to everybody"
    check_token(text)
    for place, said in (
        ("--token", parameters.get("token")),
        (f"--token-file {parameters.get('token_file')}", parameters.get("token_file")),
        (TOKEN_VARIABLE, environment.get(TOKEN_VARIABLE)),
        (f"{TOKEN_FILE_VARIABLE} ({environment.get(TOKEN_FILE_VARIABLE)})",
         environment.get(TOKEN_FILE_VARIABLE)),
    ):  # fmt: skip
        if said:
            return f"from {place}"
    return f"from {configured}, set by {merged.origins['network.token_file']}"
