"""`neuroswarm health`: whether a node lives, or is ready, by the exit code."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from neuroswarm.cli.health_check import TIMEOUT_S, check
from neuroswarm.cli.node_address import HELP


def health(
    node: Annotated[
        str | None,
        typer.Argument(
            help=f"The HTTP address of a node or tracker: {HELP}. Default: this machine, port "
            "7101 or that of NEUROSWARM_PORT.",
            metavar="NODE",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask only whether the process answers.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0.1)] = TIMEOUT_S,
) -> int:
    """Tell by the exit code whether a node is ready: 0, or 69 and why not.

    Ready is who holds a state of the swarm; with --live it is enough that the process answers, as
    it does from its first second on, while it still loads.
    """
    return check(node, is_live=live, environment=os.environ, timeout_s=timeout)
