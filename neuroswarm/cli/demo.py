"""`neuroswarm demo`: watch several nodes on this machine train one model."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import LogLevelOption

if TYPE_CHECKING:
    from neuroswarm.demo.launch import Launch

_PREFIX = "NEUROSWARM_"


def demo(
    peers: Annotated[int, typer.Option(help="Peers, hostile ones included.")] = 4,
    minutes: Annotated[float, typer.Option(help="Minutes that the swarm trains.")] = 3.0,
    byzantine: Annotated[
        int, typer.Option(help="Peers that publish amplified, negated contributions.")
    ] = 0,
    kill: Annotated[
        int, typer.Option(help="Peers to kill half-way and start again 20 s later.")
    ] = 0,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", help="Write what was measured here.", show_default=False),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Write a picture here. Default: beside the JSON file, if there is one.",
            show_default=False,
        ),
    ] = None,
    no_picture: Annotated[
        bool, typer.Option("--no-picture", help="Draw nothing (needs no matplotlib).")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Text file or folder to train on. Default: this Python's library source.",
            show_default=False,
        ),
    ] = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="New folder for the nodes' state and logs. Default: a temporary one.",
            show_default=False,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any setting of the nodes, as section.key=value; may be given again.",
            show_default=False,
        ),
    ] = None,
    log_level: LogLevelOption = "warning",
) -> int:
    """Watch several nodes on this machine train one model, and what they gain by it.

    Each node is a process like `neuroswarm node` makes one. Afterwards one node trains alone
    for as many steps; or, with --byzantine or --kill, a swarm without such troubles does. Ends
    with 70 if what was promised does not hold.

    Examples:
      neuroswarm demo --peers 4 --minutes 3 --json demo.json

      neuroswarm demo --peers 5 --byzantine 1 --kill 1
    """
    from neuroswarm.cli.logs import configure_logging
    from neuroswarm.clock import SystemClock
    from neuroswarm.demo import picture as pictures
    from neuroswarm.demo.scenario import Scenario, Wishes

    configure_logging(log_level, "plain")
    signal.signal(signal.SIGTERM, _leave)
    wishes = Wishes(peers, minutes, byzantine, kill)
    launch = make_launch(assignments or [], data, os.environ)
    image = None if no_picture else picture or (json_path and json_path.with_suffix(".png"))
    if image is not None:
        pictures.require_matplotlib()
    for path in (json_path, image):
        _require_writable(path)
    folder = _make_folder(work_dir)
    scenario = Scenario(wishes, launch, folder, display=_display(), clock=SystemClock())
    try:
        report = scenario.run()
    except BaseException:
        typer.echo(f"the nodes' logs are in {folder}", err=True)
        raise
    if json_path is not None:
        json_path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    if image is not None:
        pictures.draw(report, image)
    return _conclude(report, folder, is_temporary=work_dir is None)


def make_launch(
    assignments: list[str], data: Path | None, environment: Mapping[str, str]
) -> Launch:
    """What the nodes of the demo have in common, with a fresh token; ConfigError if not legal."""
    from neuroswarm.cli import settings
    from neuroswarm.demo.launch import SETTINGS, Launch
    from neuroswarm.identity.token import SwarmToken

    layers = [
        settings.from_values(SETTINGS, "the demo"),
        settings.from_flags({"data": data}),
        settings.from_assignments(assignments),
    ]
    settings.resolve(layers)  # complains
    merged = {path: value for layer in layers for path, value in layer.values.items()}
    if data is not None:
        merged["data.path"] = data.absolute()
    kept = {k: v for k, v in environment.items() if not k.startswith(_PREFIX)}
    return Launch(merged, kept, SwarmToken.new().text)


def _display() -> Any:
    from rich.console import Console

    from neuroswarm.demo.display import make_display

    return make_display(Console())


def _make_folder(work_dir: Path | None) -> Path:
    from neuroswarm.errors import ConfigError

    if work_dir is None:
        return Path(tempfile.mkdtemp(prefix="neuroswarm-demo-"))
    try:
        work_dir.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"work folder exists already: {work_dir} (give a new one)") from error
    return work_dir.absolute()


def _require_writable(path: Path | None) -> None:
    """ConfigError now rather than after minutes."""
    from neuroswarm.errors import ConfigError

    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ConfigError(f"cannot write {path}: no folder {path.parent} to write to")


def _conclude(report: Mapping[str, Any], folder: Path, *, is_temporary: bool) -> int:
    from neuroswarm.demo.report import check_claims
    from neuroswarm.demo.scenario import summarise

    for line in summarise(report):
        typer.echo(line)
    broken = [claim for claim in check_claims(report) if not claim.holds]
    for claim in broken:
        typer.echo(f"neuroswarm: failed: {claim.said}", err=True)
    if broken:
        typer.echo(f"the nodes' logs are in {folder}", err=True)
        return ExitCode.UNFULFILLED
    if is_temporary:
        shutil.rmtree(folder, ignore_errors=True)
    return ExitCode.OK


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
