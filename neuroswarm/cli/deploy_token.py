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
        AdmissionError: a token is malformed, or a file cannot be read.
    """
    if token_file is None and environment.get(TOKEN_VARIABLE, "").strip():
        text = find_token(None, None, environment)
        assert text is not None, "the variable has one"
        check_token(text)
        return TokenSource(Fed(text, f"printenv {TOKEN_VARIABLE} |"))
    named = environment.get(TOKEN_FILE_VARIABLE, "").strip()
    file = token_file or (Path(named) if named else DEFAULT_FILE)
    source = f"< {shlex.quote(str(file))}"
    if not file.expanduser().exists():
        from neuroswarm.identity.token import SwarmToken

        return TokenSource(Fed(SwarmToken.new().text, source), file)
    text = read_token_file(file)
    check_token(text)
    return TokenSource(Fed(text, source))
