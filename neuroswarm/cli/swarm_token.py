"""Where the swarm token comes from: flags, then environment, then the configuration.

Refuses to print it, but for `neuroswarm token show`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuroswarm.errors import AdmissionError

if TYPE_CHECKING:
    from neuroswarm.identity.token import SwarmToken
    from neuroswarm.identity.token_ring import TokenRing

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "NEUROSWARM_TOKEN"
TOKEN_FILE_VARIABLE = "NEUROSWARM_TOKEN_FILE"
ACCEPT_TOKEN_FILE_VARIABLE = "NEUROSWARM_ACCEPT_TOKEN_FILE"


def find_token(
    token: str | None,
    token_file: Path | None,
    environment: Mapping[str, str],
    configured_file: Path | None = None,
) -> str | None:
    """The token's text, or None if nobody gave one.

    Args:
        token: Value of `--token`.
        token_file: Value of `--token-file`.
        environment: Looked at for `NEUROSWARM_TOKEN` and `NEUROSWARM_TOKEN_FILE`.
        configured_file: The setting `network.token_file`.

    Raises:
        AdmissionError: two places of the same rank say one, the file cannot be read, or a token
            was given that is empty: a swarm is not to be open because a variable is unset.
    """
    if token is not None and not token.strip():
        raise AdmissionError(_empty("--token"))
    said = environment.get(TOKEN_VARIABLE, "").strip()
    said_file = environment.get(TOKEN_FILE_VARIABLE, "").strip()
    ranks: tuple[tuple[str | None, str | Path | None, str], ...] = (
        (token, token_file, "--token and --token-file"),
        (said, said_file, f"{TOKEN_VARIABLE} and {TOKEN_FILE_VARIABLE}"),
        (None, configured_file, ""),
    )
    for text, file, names in ranks:
        if text and file:
            raise AdmissionError(f"{names} exclude each other: give one")
        if text:
            return text
        if file:
            return read_token_file(Path(file))
    for variable in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE):
        if variable in environment:
            raise AdmissionError(_empty(variable))
    return None


def _empty(name: str) -> str:
    return (
        f"the swarm token is empty: {name} is given without a value (give the token of the swarm; "
        f"for an open swarm leave {name} out)"
    )


def find_accepted(files: Sequence[Path] | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Files with tokens accepted besides: those of the flags, else of the environment."""
    if files:
        return tuple(files)
    named = environment.get(ACCEPT_TOKEN_FILE_VARIABLE, "").split(",")
    return tuple(Path(name.strip()) for name in named if name.strip())


def read_token_file(path: Path) -> str:
    """The first word of a token file; AdmissionError if there is none."""
    from neuroswarm.identity import token_ring

    return token_ring.read_token_file(path)


def load_ring(text: str | None, files: Iterable[Path]) -> TokenRing:
    """The token of this text, as `load_token` has it, with those accepted besides.

    Raises:
        AdmissionError: a token is malformed, or a file cannot be read.
    """
    from neuroswarm.identity.token_ring import TokenRing, read_accepted

    accepted = [read_accepted(file) for file in files]
    return TokenRing.of(load_token(text), accepted)


def check_token(text: str) -> None:
    """AdmissionError if this is no whole token; cheap, to be done before anything is loaded."""
    from neuroswarm.identity.token import SwarmToken

    SwarmToken.parse(text)


def check_accepted(files: Iterable[Path]) -> None:
    """AdmissionError if one of the files holds no token to accept; cheap, as `check_token`."""
    from neuroswarm.identity.token_ring import read_accepted

    for file in files:
        read_accepted(file)


def load_token(text: str | None) -> SwarmToken:
    """The token of this text; without one the open swarm's, which is said loudly."""
    from neuroswarm.identity.token import SwarmToken

    if text is None:
        logger.warning(
            "no swarm token: this swarm is OPEN to everybody who can reach its ports, and takes "
            "few peers from one address (make a token with `neuroswarm token new`)"
        )
        return SwarmToken.OPEN
    return SwarmToken.parse(text)
