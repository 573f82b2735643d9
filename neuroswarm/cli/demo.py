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
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from neuroswarm.cli import demo_options as options
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.options import LogLevelOption
from neuroswarm.cli.reports import JsonPath

if TYPE_CHECKING:
    from neuroswarm.demo.launch import Launch
    from neuroswarm.demo.scenario import Wishes

_PREFIX = "NEUROSWARM_"


def demo(
    *,
    peers: options.Peers = 4,
    minutes: options.Minutes = 3.0,
    byzantine: options.Byzantine = 0,
    kill: options.Kill = 0,
    json_path: JsonPath = None,
    picture: options.Picture = None,
    no_picture: options.NoPicture = False,
    data: options.Data = None,
    work_dir: options.WorkDir = None,
    assignments: options.Assignments = None,
    log_level: LogLevelOption = "warning",
) -> int:
    """Watch several nodes on this machine train one model, and what they gain by it.

    Each node is a process like `neuroswarm node` makes one.

    Afterwards one node trains alone for as many steps; or, with --byzantine
    or --kill, a swarm without such troubles does.

    Ends with 70 if what was promised does not hold.

    Examples:
      neuroswarm demo --peers 4 --minutes 3 --json demo.json

      neuroswarm demo --peers 5 --byzantine 1 --kill 1
    """
    from neuroswarm.cli.logs import configure_logging
    from neuroswarm.demo.picture import draw
    from neuroswarm.demo.scenario import Wishes

    configure_logging(log_level, "plain")
    signal.signal(signal.SIGTERM, _leave)
    wishes = Wishes(peers, minutes, byzantine, kill)
    launch = make_launch(assignments or [], data, os.environ)
    _require_file(json_path)
    image = None if no_picture else picture or (json_path and json_path.with_suffix(".png"))
    _require_picture(image)
    folder = _make_folder(work_dir)
    report = _run(wishes, launch, folder)
    if json_path is not None:
        json_path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
        typer.echo(f"measures written to {json_path}")
    if image is not None:
        draw(report, image)
        typer.echo(f"picture written to {image}")
    return _conclude(report, folder, is_temporary=work_dir is None)


def make_launch(
    assignments: list[str], data: Path | None, environment: Mapping[str, str]
) -> Launch:
    """What the nodes of the demo have in common, with a fresh token; ConfigError if not legal."""
    from neuroswarm.cli import settings
    from neuroswarm.demo.launch import DECIDED, SETTINGS, Launch
    from neuroswarm.errors import ConfigError
    from neuroswarm.identity.token import SwarmToken

    if data is not None and not data.exists():
        raise ConfigError(f"no such file or folder: {data} (give a text file or a folder of them)")
    asked = settings.from_assignments(assignments)
    for path in asked.values:
        if path.startswith(DECIDED):
            raise ConfigError(f"--set {path}: the demo decides that itself")
    layers = [
        settings.from_values(SETTINGS, "the demo"),
        settings.from_flags({"data": data}),
        asked,
    ]
    settings.resolve(layers)  # complains
    merged = {path: value for layer in layers for path, value in layer.values.items()}
    if data is not None:
        merged["data.path"] = data.absolute()
    kept = {k: v for k, v in environment.items() if not k.startswith(_PREFIX)}
    return Launch(merged, kept, SwarmToken.new().text)


def _run(wishes: Wishes, launch: Launch, folder: Path) -> dict[str, Any]:
    from rich.console import Console

    from neuroswarm.clock import SystemClock
    from neuroswarm.demo.display import make_display
    from neuroswarm.demo.scenario import Scenario

    display = make_display(Console())
    try:
        return Scenario(wishes, launch, folder, display=display, clock=SystemClock()).run()
    except BaseException:
        typer.echo(f"the nodes' logs are in {folder}", err=True)
        raise


def _make_folder(work_dir: Path | None) -> Path:
    from neuroswarm.errors import ConfigError

    if work_dir is None:
        return Path(tempfile.mkdtemp(prefix="neuroswarm-demo-"))
    try:
        work_dir.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"work folder exists already: {work_dir} (give a new one)") from error
    return work_dir.absolute()


def _require_file(path: Path | None) -> None:
    """ConfigError if this cannot be written, now rather than after minutes."""
    from neuroswarm.errors import ConfigError

    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ConfigError(f"cannot write {path}: no folder {path.parent} to write to")


def _require_picture(image: Path | None) -> None:
    from neuroswarm.demo.picture import require_matplotlib

    _require_file(image)
    if image is not None:
        require_matplotlib()


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
