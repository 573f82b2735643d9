"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.logs import LogFormat, LogLevel

SECURITY = "Security"
LOGGING = "Logging"


def read_path(text: str) -> Path:
    """The path that a flag was given; an empty one is a usage error.

    Python takes an empty path for the working folder, which nobody means by it.
    """
    if not text.strip():
        raise typer.BadParameter("a path without a name (is a variable unset? else leave it out)")
    return Path(text)


def read_word(text: str) -> str:
    """A name for another program's command line; a usage error if it cannot be one word of it.

    What begins with `-` would be taken for an option there.
    """
    if not text or text.startswith("-") or not text.isprintable() or " " in text:
        raise typer.BadParameter(f"{text!r} is no name (one word that does not begin with -)")
    return text


TokenOption = Annotated[
    str | None,
    typer.Option(
        help="The swarm's token; better in a file, command lines are seen by others. "
        "(env NEUROSWARM_TOKEN)",
        rich_help_panel=SECURITY,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        help="File that holds the swarm's token. (env NEUROSWARM_TOKEN_FILE)",
        parser=read_path,
        metavar="PATH",
        rich_help_panel=SECURITY,
    ),
]
MaxPerAddressOption = Annotated[
    int | None,
    typer.Option(
        help="Peers taken from one IPv4 address or IPv6 /64. Default: 16 without a token, "
        "no limit with one.",
        envvar="NEUROSWARM_NETWORK_MAX_PEERS_PER_ADDRESS",
        rich_help_panel=SECURITY,
        show_default=False,
        min=1,
    ),
]
AcceptTokenFileOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="File with a token to accept besides; may be given again. "
        "(env NEUROSWARM_ACCEPT_TOKEN_FILE, commas between several)",
        parser=read_path,
        metavar="PATH",
        rich_help_panel=SECURITY,
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        help="What to log at least.", envvar="NEUROSWARM_LOG_LEVEL", rich_help_panel=LOGGING
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        help="Lines for people or for machines.",
        envvar="NEUROSWARM_LOG_FORMAT",
        rich_help_panel=LOGGING,
    ),
]
