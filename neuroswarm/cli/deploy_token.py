"""Where the token of the docker secret comes from; a new one is kept in a file.

A docker secret cannot be read back, and nodes outside docker need the token too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.cli.swarm_token import (
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    check_token,
    find_token,
    read_token_file,
)
from neuroswarm.deployment.command import Fed
from neuroswarm.errors import AdmissionError

DEFAULT_FILE = Path("neuroswarm-token")


@dataclass(frozen=True)
class TokenSource:
    """A token to feed to `docker secret create`, and the file to make for it."""

    fed: Fed
    new_file: Path | None = None
    """Where a new token is to be kept; None if it is not new."""

    @property
    def lines(self) -> list[str]:
        """What makes the token, as a shell takes it."""
        if self.new_file is None:
            return []
        return [f"neuroswarm token new --out {shlex.quote(str(self.new_file))}"]

    @property
    def remark(self) -> str:
        """What a new token means, for who mistyped the name of a file that is there."""
        return (
            f"there is no {self.new_file}: a new token, of a new swarm, is made and kept in "
            f"{self.new_file}"
        )

    def keep(self) -> None:
        """Write a new token to its file, readable by its owner alone, and say so."""
        from neuroswarm.cli.token import write_token
        from neuroswarm.identity.token import SwarmToken

        if self.new_file is not None:
            write_token(SwarmToken.parse(self.fed.text), self.new_file)


def choose_source(token_file: Path | None, environment: Mapping[str, str]) -> TokenSource:
    """The token of the flag's file, of the environment, or of the default file.

    A file that is not there yet is to get a new token.

    Raises:
        AdmissionError: a token is malformed, a variable is empty (as one that was meant to name
            the token of a swarm is), or a file cannot be read or made.
    """
    named = environment.get(TOKEN_FILE_VARIABLE, "").strip()
    is_said = TOKEN_VARIABLE in environment or TOKEN_FILE_VARIABLE in environment
    if (
        token_file is None
        and is_said
        and (environment.get(TOKEN_VARIABLE, "").strip() or not named)
    ):
        text = find_token(None, None, environment)
        assert text is not None, "the variable has one"
        check_token(text)
        return TokenSource(Fed(text, f"printenv {TOKEN_VARIABLE} |"))
    file = (token_file or (Path(named) if named else DEFAULT_FILE)).expanduser()
    source = f"< {shlex.quote(str(file))}"
    if not file.exists():
        from neuroswarm.identity.token import SwarmToken

        if not file.parent.is_dir():
            raise AdmissionError(
                f"there is no {file}, and no folder {file.parent} for a new token (is it mistyped?)"
            )
        return TokenSource(Fed(SwarmToken.new().text, source), file)
    text = read_token_file(file)
    check_token(text)
    return TokenSource(Fed(text, source))
