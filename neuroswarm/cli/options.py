"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.logs import LogFormat, LogLevel

SECURITY = "Security"
LOGGING = "Logging"

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
