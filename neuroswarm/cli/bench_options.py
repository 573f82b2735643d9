"""What the commands of benchmarks of many runs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from neuroswarm.cli.options import read_path

SeedsOption = Annotated[
    str | None,
    typer.Option(help="Seeds, with commas. Default: 11,12,13; 11 if quick.", show_default=False),
]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at once. Default: one a core.", show_default=False),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Text file or folder to train on. Default: this Python's library source.",
        show_default=False,
        parser=read_path,
        metavar="PATH",
    ),
]


def choose_seeds(text: str | None, default: Sequence[int]) -> Sequence[int]:
    """The seeds that a flag names, or the default; ConfigError if they are none."""
    from neuroswarm.errors import ConfigError

    if text is None:
        return default
    try:
        chosen = tuple(int(part) for part in split_names(text))
    except ValueError as error:
        raise ConfigError(f"--seeds {text}: whole numbers with commas are needed") from error
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise ConfigError(f"--seeds {text}: at least one, none twice or below 0")
    return chosen


def split_names(text: str, separator: str = ",") -> tuple[str, ...]:
    """The parts of a flag that are not empty."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def runs_beside(json_path: Path | None) -> Path | None:
    """Where finished runs lie until the report is written; nowhere without one."""
    return None if json_path is None else json_path.with_name(f"{json_path.name}.runs")
