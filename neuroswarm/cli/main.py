"""The `neuroswarm` command: dispatch, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from neuroswarm.cli import (
    bench,
    config,
    data,
    demo,
    deploy,
    doctor,
    export,
    generate,
    health,
    node,
    owner,
    rules,
    service,
    status,
    token,
    tracker,
)
from neuroswarm.cli.early_signals import leave
from neuroswarm.cli.exit_codes import ExitCode, explain
from neuroswarm.cli.suggestions import Commands, find_near

# click's own errors (bad usage), wherever this version of typer keeps them
_USAGE_ERRORS = tuple(
    kind
    for kind in typer.BadParameter.__mro__
    if issubclass(kind, Exception) and kind is not Exception
)

app = typer.Typer(
    name="neuroswarm",
    cls=Commands,
    help="Train one model together on the computers you have, with no coordinator.",
    epilog="neuroswarm COMMAND --help explains a command; exit codes are in the README.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(node.node)
app.command()(tracker.tracker)
app.command()(status.status)
app.command()(health.health)
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(export.export)
app.command()(generate.generate)
app.add_typer(config.app, name="config", cls=Commands)
app.add_typer(data.app, name="data", cls=Commands)
app.add_typer(token.app, name="token", cls=Commands)
app.add_typer(owner.app, name="owner", cls=Commands)
app.add_typer(rules.app, name="rules", cls=Commands)
app.add_typer(service.app, name="service", cls=Commands)
app.add_typer(deploy.app, name="deploy", cls=Commands)
app.add_typer(bench.app, name="bench", cls=Commands)


@app.callback(invoke_without_command=True)
def neuroswarm(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train one model together on the computers you have, with no coordinator."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"neuroswarm {version_of('neuroswarm')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Entry point of the `neuroswarm` script."""
    # The C core of gRPC logs refused handshakes by itself; it reads this when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    leave(sys.argv[1:], run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code; errors of users are one line on stderr."""
    try:
        code = app(list(arguments), prog_name="neuroswarm", standalone_mode=False)
    except _USAGE_ERRORS as error:
        if offered := getattr(error, "possibilities", None):  # of a flag that there is not
            error.possibilities = find_near(error.option_name, offered)  # type: ignore[attr-defined]
        return _fail(
            ExitCode.USAGE, " ".join(cast("typer.BadParameter", error).format_message().split())
        )
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last resort of the command line
        known = explain(error)
        if known is None:
            import traceback

            traceback.print_exc()
            return _fail(ExitCode.INTERNAL, "internal error (see above); please report it")
        return _fail(*known)
    return code if isinstance(code, int) else ExitCode.OK


def _fail(code: ExitCode, line: str) -> int:
    typer.echo(f"neuroswarm: {line}", err=True)
    return code
