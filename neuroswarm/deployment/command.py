"""Docker commands as values, and how each is written in a shell.

Refuses to run them; `engine` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Output:
    """What another command prints, as one argument, or one argument a line."""

    command: Command
    is_list: bool = False
    advice: str = ""
    """What to do if it prints several lines where one word is wanted."""

    def __str__(self) -> str:
        return f"$({self.command})" if self.is_list else f'"$({self.command})"'


Word = str | Output
"""One word of a command line; an `Output` is put in when the command runs."""


@dataclass(frozen=True, slots=True)
class Fed:
    """What a command reads on its standard input; not shown, as it may be a secret."""

    text: str = field(repr=False)
    source: str
    """Where a shell has the same from: a redirection, like `< token`, or `printenv NAME |`."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call of the docker client; `str` gives the line that does the same in a shell."""

    words: tuple[Word, ...]
    """Arguments of `docker`."""
    variables: Mapping[str, Word] = field(default_factory=lambda: MappingProxyType({}))
    """Added to the environment."""
    fed: Fed | None = None

    def __str__(self) -> str:
        assigned = [f"{name}={_write(value)}" for name, value in self.variables.items()]
        environment = ["env", *assigned] if assigned else []
        line = " ".join([*environment, "docker", *map(_write, self.words)])
        if self.fed is None:
            return line
        if self.fed.source.endswith("|"):
            return f"{self.fed.source} {line}"
        return f"{line} {self.fed.source}"


@dataclass(frozen=True, slots=True)
class UntilEmpty:
    """Run a command again and again until it prints nothing."""

    command: Command

    def __str__(self) -> str:
        return f'until [ -z "$({self.command})" ]; do sleep 1; done'


Step = Command | UntilEmpty


def docker(
    *words: Word, variables: Mapping[str, Word] | None = None, fed: Fed | None = None
) -> Command:
    """The command `docker WORDS`."""
    return Command(words, MappingProxyType(dict(variables or {})), fed)


def _write(word: Word) -> str:
    return str(word) if isinstance(word, Output) else shlex.quote(word)
