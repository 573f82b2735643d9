"""The tokens that a node uses and accepts: one in use, and others while a swarm changes it.

Refuses to know when which one is given up; whoever runs the nodes does (docs/tokens.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.errors import AdmissionError
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken

MAX_TOKEN_FILE_BYTES = 4096
OPEN_WORD = "open"
MAX_ACCEPTED = 4
"""Tokens accepted besides the one in use; each makes a stranger's datagram cost one more check."""


@dataclass(frozen=True)
class TokenRing:
    """The token that this node seals and issues its certificate with, and those it accepts."""

    primary: SwarmToken
    accepted: tuple[SwarmToken, ...] = ()
    """Accepted besides `primary`, without it and without doubles."""

    @classmethod
    def of(cls, primary: SwarmToken, accepted: Iterable[SwarmToken] = ()) -> TokenRing:
        """A ring of these, doubles dropped; AdmissionError above `MAX_ACCEPTED`."""
        others = tuple(token for token in dict.fromkeys(accepted) if token != primary)
        if len(others) > MAX_ACCEPTED:
            raise AdmissionError(f"accepted swarm tokens: {len(others)} (limit {MAX_ACCEPTED})")
        return cls(primary, others)

    @classmethod
    def read(cls, primary: SwarmToken, files: Iterable[Path]) -> TokenRing:
        """The ring of `primary` and the tokens in these files. Blocks for the disk.

        Raises:
            AdmissionError: a file cannot be read or holds no token, or there are too many.
        """
        return cls.of(primary, [read_accepted(file) for file in files])

    @property
    def is_open(self) -> bool:
        """Whether anybody can enter: the token that everybody knows is among them."""
        return any(token.is_open for token in (self.primary, *self.accepted))

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of all, the one in use first."""
        return [token.fingerprint for token in (self.primary, *self.accepted)]

    @property
    def sealer(self) -> Sealer:
        """Seals with the token in use, opens what was sealed with any."""
        return Sealer(self.primary.datagram_key, *(token.datagram_key for token in self.accepted))


def read_accepted(path: Path) -> SwarmToken:
    """The token in a file of an accepted one; the word `open` stands for that of open swarms."""
    text = read_token_file(path)
    return SwarmToken.OPEN if text == OPEN_WORD else SwarmToken.parse(text)


def read_token_file(path: Path) -> str:
    """The first word of a token file; AdmissionError if there is none."""
    try:
        with path.expanduser().open("rb") as file:
            data = file.read(MAX_TOKEN_FILE_BYTES)
    except OSError as error:
        raise AdmissionError(f"cannot read the token file {path}: {error.strerror}") from error
    lines = data.decode("ascii", errors="replace").split()
    if not lines:
        raise AdmissionError(f"the token file {path} is empty")
    return lines[0]
