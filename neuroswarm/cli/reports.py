"""What every benchmark's command does with its report: where it goes, and the exit code.

Refuses to know what is measured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import read_path

JsonPath = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write what was measured here.",
        show_default=False,
        parser=read_path,
        metavar="PATH",
    ),
]


def require_file(path: Path | None) -> None:
    """ConfigError if this cannot be written, now rather than after the runs."""
    from neuroswarm.errors import ConfigError

    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ConfigError(f"cannot write {path}: no folder {path.parent} to write to")


def write_report(path: Path | None, report: dict[str, Any]) -> None:
    """Write what was measured, and say where; nothing without a path."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
        typer.echo(f"measures written to {path}")


def conclude(report: dict[str, Any]) -> int:
    """Say which promises do not hold; the exit code."""
    broken = [promise for promise in report["promises"] if not promise["holds"]]
    for promise in broken:
        typer.echo(f"neuroswarm: failed: {promise['said']}", err=True)
    return ExitCode.UNFULFILLED if broken else ExitCode.OK
