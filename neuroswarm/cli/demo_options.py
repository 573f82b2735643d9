"""The flags of `neuroswarm demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.options import read_path

Peers = Annotated[int, typer.Option(help="Peers, hostile ones included.")]
Minutes = Annotated[float, typer.Option(help="Minutes that the swarm trains.")]
Byzantine = Annotated[
    int, typer.Option(help="Peers that publish amplified, negated contributions.")
]
Kill = Annotated[int, typer.Option(help="Peers to kill half-way and start again 20 s later.")]
Picture = Annotated[
    Path | None,
    typer.Option(
        help="Write a picture here. Default: beside the JSON file, if there is one.",
        show_default=False,
        parser=read_path,
        metavar="PATH",
    ),
]
NoPicture = Annotated[
    bool, typer.Option("--no-picture", help="Draw nothing (needs no matplotlib).")
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Text file or folder to train on. Default: this Python's library source.",
        show_default=False,
        parser=read_path,
        metavar="PATH",
    ),
]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        help="New folder for the nodes' state and logs. Default: a temporary one.",
        show_default=False,
        parser=read_path,
        metavar="PATH",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any setting of the nodes, as section.key=value; may be given again.",
        show_default=False,
    ),
]
