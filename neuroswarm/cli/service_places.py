"""Whether the places that a unit's node uses are there, and open to it in the unit.

The unit's node may be another user, and the unit hides folders from it. Changes nothing.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuroswarm.cli.service_modules import find_factory_folder
from neuroswarm.errors import ConfigError, DataError
from neuroswarm.hardware.accounts import PASS, WRITE, Account

if TYPE_CHECKING:
    from neuroswarm.cli.service_flags import Typed
    from neuroswarm.config import SwarmNodeConfig

EMPTIED = (Path("/tmp"), Path("/var/tmp"))
"""Folders of which a unit of the system has its own (`PrivateTmp=`), and which are emptied."""

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""Folders that `ProtectHome=` hides."""

MAX_FILES = 10_000
"""Files of a folder of data that are looked at."""

DATA, BASE, CHECKPOINTS = "data.path", "lora.base", "checkpoint.dir"
MODULE = "the folder of the model's module"


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder that the node uses."""

    what: str
    """Setting that names it, or what it is."""
    path: Path
    is_written: bool = False


def find_places(typed: Typed, *, is_user: bool) -> list[Place]:
    """All that the unit's node reads or writes by itself, but for the default state folder."""
    from neuroswarm.cli.service_flags import ACCEPTED, STATE_DIR, TOKEN_FILE
    from neuroswarm.config.setting_paths import find_paths, make_whole

    places = [Place("the program", path) for path in _find_program()]
    if typed.file is not None:
        places.append(Place("the settings", typed.file))
    named = find_paths(typed.config)
    for setting in (TOKEN_FILE, *((ACCEPTED,) if typed.accepted else ()), STATE_DIR):
        named.pop(setting, None)  # the unit hands them over, or says itself where they are
    for setting, paths in named.items():
        places += [Place(setting, make_whole(path), setting == CHECKPOINTS) for path in paths]
    if typed.state_dir is not None:
        places.append(Place(STATE_DIR, typed.state_dir, is_written=True))
    folder = find_factory_folder(typed.config, is_user=is_user)
    if folder is not None:
        places.append(Place(MODULE, folder))
    return places


def require_there(config: SwarmNodeConfig, places: list[Place]) -> None:
    """Refuse what the node would refuse of what it reads.

    Raises:
        ConfigError: it is not there.
        DataError: nothing of the data can be trained on.
    """
    from neuroswarm.doctor.finding import Level
    from neuroswarm.doctor.judge_data import judge_data, read_data

    path = config.data.path
    if path is not None:
        facts = read_data(path, config.data.max_bytes, may_fetch=config.data.fetch)
        found = judge_data(facts, 2 * (config.training.context + 1))
        if found.level is Level.FAIL:
            raise DataError(f"{DATA}: {found.said} ({found.fix})")
    for place in places:
        if not place.is_written and not place.path.exists():
            raise ConfigError(f"{place.what}: {place.path} is not there")


def require_folders(typed: Typed, places: list[Place]) -> None:
    """ConfigError if what is to be a folder of the node's own is a file, or is below one."""
    written = [(place.what, place.path) for place in places if place.is_written]
    if typed.state_dir is None and typed.config.state_dir is not None:
        written.append(("state_dir", typed.config.state_dir.expanduser()))
    for what, path in written:
        there = next(part for part in (path, *path.parents) if os.path.lexists(part))
        if not there.is_dir():
            raise ConfigError(f"{what}: {path} cannot be a folder: {there} is none (name another)")


def require_lasting(places: list[Place]) -> None:
    """ConfigError if one is in a folder that a unit of the system has of its own."""
    for place in places:
        for folder in _ancestors(place.path) & set(EMPTIED):
            raise ConfigError(
                f"{place.what}: {place.path} is in {folder}, which is emptied, and of which the "
                "service has one of its own (PrivateTmp=): move it to another folder"
            )


def is_in_home(places: list[Place]) -> bool:
    """Whether one is below the homes of users, which a unit of the system hides by default."""
    homes = {*HOMES, Path.home()} - {Path("/")}
    return any(_ancestors(place.path) & homes for place in places)


def require_open(places: list[Place], account: Account, who: str) -> None:
    """ConfigError if a user cannot read, or write, what the node has to; `who` is that user.

    A folder that is to be written and is not there is made for that user; of a folder of data
    10,000 files are looked at.
    """
    for place in places:
        if place.is_written:
            _require_writable(place, account, who)
            continue
        for path in _files(place):
            closed = _find_closed(account, path)
            if closed is not None:
                raise ConfigError(
                    f"{place.what}: {closed} is closed to {who}: give --run-as a user that can "
                    f"read {path}, or put it where all can (`chmod -R o+rX` opens a folder)"
                )


def _require_writable(place: Place, account: Account, who: str) -> None:
    if place.path.exists() and (closed := _find_closed(account, place.path, WRITE)):
        raise ConfigError(
            f"{place.what}: {closed} cannot be written by {who}: give the folder to that user "
            f"(chown -R), or name another"
        )
    there = next(part for part in place.path.parents if part.exists())
    if closed := _find_closed(account, there, PASS):
        raise ConfigError(f"{place.what}: {who} cannot pass {closed} on the way to {place.path}")


def _files(place: Place) -> Iterator[Path]:
    """The place, and what is read of it if it is a folder of data or of weights."""
    from neuroswarm.config.setting_paths import MODEL
    from neuroswarm.corpus.text_files import find_text_files

    yield place.path
    if place.what in (DATA, BASE, MODEL) and place.path.is_dir():
        yield from itertools.islice(find_text_files(place.path), MAX_FILES)


def _find_closed(account: Account, path: Path, wanted: int | None = None) -> Path | None:
    try:
        return account.find_closed(path) if wanted is None else account.find_closed(path, wanted)
    except PermissionError:
        return path  # closed to whoever calls already


def _ancestors(path: Path) -> set[Path]:
    """The folders that a path is in, as it is written and where its links lead."""
    return {*path.parents, *Path(os.path.realpath(path)).parents}


def _find_program() -> tuple[Path, ...]:
    """The Python that runs, what it is a link to, and this package."""
    python = Path(sys.executable)
    return (python, python.resolve(), Path(__file__).parents[1])
