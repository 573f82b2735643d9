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
from neuroswarm.deployment.variables import DEFAULT_IMAGE, DEFAULT_SECRET, DEFAULT_STACK
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
StackName = Annotated[
    str, typer.Option("--name", help="Name of the stack.", parser=read_word, metavar="NAME")
]
Image = Annotated[
    str,
    typer.Option(help="The image, with its registry and tag.", parser=read_word, metavar="IMAGE"),
]
Secret = Annotated[
    str,
    typer.Option(
        help="Name of the docker secret that holds the swarm's token.",
        parser=read_word,
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

IMAGE, SECRET, STACK = DEFAULT_IMAGE, DEFAULT_SECRET, DEFAULT_STACK


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


def require_name(name: str, confirmed: str | None, lines: Iterable[str]) -> None:
    """DeployError unless this name was typed: what these commands delete cannot be had back."""
    if confirmed is None:
        show_plan(lines)
        question = f"this deletes what {name} trained on this machine; type {name} to go on"
        try:
            confirmed = typer.prompt(question, err=True)
        except typer.Abort as error:
            raise nobody_answers(f"--confirm {name}") from error
    if confirmed != name:
        raise DeployError(f"not confirmed: {confirmed!r} is not {name!r}; nothing was changed")


def nobody_answers(flag: str = "--yes") -> typer.BadParameter:
    """The error where a question gets no answer, with the flag that answers it."""
    return typer.BadParameter(f"nobody answers here: add {flag}", param_hint=flag.split()[0])
