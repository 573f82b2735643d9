"""How every verb of `neuroswarm deploy` shows, asks and runs; and options that they share.

Refuses to know what the commands are for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli.options import read_path, read_word
from neuroswarm.deployment import names
from neuroswarm.deployment.variables import DEFAULT_SECRET, DEFAULT_STACK
from neuroswarm.errors import DeployError

if TYPE_CHECKING:
    from neuroswarm.deployment.command import Command, Step
    from neuroswarm.deployment.engine import Engine

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the docker commands, to be pasted; run nothing."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the commands run.")]
Confirmed = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="NAME",
        help="The name that --volumes asks for, where nobody can type it.",
        show_default=False,
    ),
]


def read_image(text: str) -> str:
    """An image's name that a flag was given; ConfigError if docker knows none like it."""
    return names.require_image(read_word(text))


def read_secret(text: str) -> str:
    """A docker secret's name that a flag was given; ConfigError if docker knows none like it."""
    return names.require_secret(read_word(text))


def read_stack(text: str) -> str:
    """A stack's name that a flag was given; ConfigError if docker knows none like it."""
    return names.require_stack(read_word(text))


StackName = Annotated[
    str, typer.Option("--name", help="Name of the stack.", parser=read_stack, metavar="NAME")
]
Secret = Annotated[
    str,
    typer.Option(
        help="Name of the docker secret that holds the swarm's token.",
        parser=read_secret,
        metavar="NAME",
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        help="A file of your own in its place (`neuroswarm deploy files` copies it).",
        parser=read_path,
        metavar="PATH",
        show_default=False,
    ),
]

SECRET, STACK = DEFAULT_SECRET, DEFAULT_STACK


def packaged(name: str) -> Path:
    """The file of this name that comes with neuroswarm."""
    from importlib.resources import files

    return Path(str(files("neuroswarm.deployment").joinpath("files", name)))


@dataclass(frozen=True)
class Operator:
    """Runs docker commands for a verb: each is shown before; in a dry run nothing runs."""

    is_dry_run: bool
    is_sure: bool = True
    """Whether the user wants not to be asked."""

    def look(self, command: Command) -> str | None:
        """What a command that only reads prints; None in a dry run, which shows it."""
        if self.is_dry_run:
            typer.echo(str(command))
            return None
        return self._engine().read(command)

    def carry_out(self, steps: Sequence[Step], *, asks: bool = True) -> bool:
        """Show the commands, ask, and run them one after the other.

        Args:
            steps: The commands.
            asks: False for those that change nothing.

        Returns:
            Whether they ran; False in a dry run.

        Raises:
            DeployError: the user said no, or a command failed: those after it do not run.
        """
        if not self.agree(map(str, steps), asks=asks):
            return False
        self.run(steps)
        return True

    def agree(self, lines: Iterable[str], *, asks: bool = True) -> bool:
        """Show what is to be done; whether to do it. DeployError if the user says no."""
        if self.is_dry_run:
            for line in lines:
                typer.echo(line)
            return False
        if asks and not self.is_sure:
            show_plan(lines)
            if not confirm("run them?"):
                raise DeployError("not confirmed: nothing was changed")
        return True

    def run(self, steps: Iterable[Step]) -> None:
        """Run them, each announced; those after one that fails do not run."""
        engine = self._engine()
        for step in steps:
            engine.run(step)

    def _engine(self) -> Engine:
        from neuroswarm.deployment.engine import Engine

        return Engine(os.environ, announce)


def show_plan(lines: Iterable[str]) -> None:
    """Show the commands that a question is about."""
    typer.echo("these commands are to run:", err=True)
    for line in lines:
        typer.echo(f"  {line}", err=True)


def announce(line: str) -> None:
    """Show a command that is about to run, as `sh -x` does."""
    typer.echo(f"+ {line}", err=True)


def confirm(question: str) -> bool:
    """Ask; usage error where nobody can answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as error:
        raise nobody_answers() from error


def require_confirmation(
    name: str, confirmed: str | None, lines: Iterable[str], *, deletes: bool, is_dry_run: bool
) -> None:
    """Have this name typed if the commands delete what was trained, which cannot be had back.

    A dry run asks for no name, but takes no wrong one.

    Raises:
        DeployError: another name was typed, or given.
    """
    if not deletes and confirmed is not None:
        raise typer.BadParameter("--confirm answers what --volumes asks: give both, or neither")
    if not deletes or (is_dry_run and confirmed is None):
        return
    if confirmed is None:
        show_plan(lines)
        question = f"this deletes what {name} trained on this machine; type {name} to go on"
        try:
            confirmed = typer.prompt(question, err=True)
        except typer.Abort as error:
            raise nobody_answers(f"--confirm {name}") from error
    if confirmed != name:
        raise DeployError(f"not confirmed: {confirmed!r} is not {name!r}; nothing was changed")


def refuse_together(command: typer.Context, flag: str, why: str, *others: str) -> None:
    """Usage error if one of `others` was typed besides `flag`, which leaves it nothing to do.

    Args:
        command: What was called.
        flag: The one that counts.
        why: What it means, for the message.
        others: Names of the command's parameters.
    """
    for parameter in command.command.params:
        source = command.get_parameter_source(parameter.name or "")
        if parameter.name in others and source is not None and source.name == "COMMANDLINE":
            name = (
                parameter.opts[0]
                if parameter.opts[0].startswith("-")
                else parameter.opts[0].upper()
            )
            raise typer.BadParameter(f"{flag} and {name} exclude each other: {why}")


def nobody_answers(flag: str = "--yes") -> typer.BadParameter:
    """The error where a question gets no answer, with the flag that answers it."""
    return typer.BadParameter(f"nobody answers here: add {flag}", param_hint=flag.split()[0])
