"""The file of a unit: where it is, whose it is, and whether its name may be taken.

Writes and removes it; the commands that go with that are in `cli/systemd.py`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import typer

from neuroswarm.cli import service_unit
from neuroswarm.errors import ConfigError

NODE_KEY = "identity.key"
"""What is in the state folder of every node."""


def find_unit_file(name: str, *, is_user: bool) -> Path:
    """Where the unit of that name belongs."""
    if not is_user:
        return service_unit.SYSTEM_UNITS / f"{name}.service"
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user" / f"{name}.service"


def require_ours(file: Path) -> None:
    """ConfigError if there is a unit of that name that this command has not written."""
    if os.path.lexists(file) and not _is_ours(file):
        raise ConfigError(f"{file} is not of `neuroswarm service install`: give another --name")


def require_new_name(name: str, *, is_user: bool, has_own_state: bool) -> None:
    """ConfigError if a unit of this name would take the place of something else.

    Args:
        name: Of the unit.
        is_user: Whether it is of the user who calls.
        has_own_state: Whether its state is elsewhere than where the manager puts it.
    """
    file = f"{name}.service"
    folders = service_unit.OTHER_USER_UNITS if is_user else service_unit.OTHER_SYSTEM_UNITS
    places = [folder / file for folder in folders]
    places += [_data_home() / "systemd" / "user" / file] if is_user else []
    places += [] if is_user else [service_unit.SYSTEM_SCRIPTS / name]
    for place in places:
        if os.path.lexists(place) and not _is_ours(place):
            raise ConfigError(
                f"{name!r} is a service of this system ({place}), which the unit would take the "
                "place of: give another --name"
            )
    state = service_unit.SYSTEM_STATE / name
    if not is_user and not has_own_state and not _is_free(state):
        raise ConfigError(
            f"{state} is not the state of a node, and systemd would give it to the service: give "
            "another --name, or --state-dir and --run-as"
        )


def require_rights(file: Path) -> None:
    """ConfigError if whoever calls cannot write or remove the file of a unit."""
    there = next(part for part in file.parents if part.exists())
    if not os.access(
        there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids
    ):
        raise ConfigError(
            f"{there} cannot be written by this user: run it as root (sudo), or for your own "
            "systemd with --user"
        )


def write_unit(file: Path, text: str) -> None:
    """Write the file at once or not at all; shown."""
    typer.echo(f"+ write {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    temporary.replace(file)


def remove_unit(file: Path) -> None:
    """Remove the file, and the link by which a manager that does not answer would start it."""
    typer.echo(f"+ rm {file}")
    file.unlink()
    for folder in file.parent.glob("*.wants"):
        if (link := folder / file.name).is_symlink():
            typer.echo(f"+ rm {link}")
            link.unlink()


def make_folder(folder: Path, owner: str | None) -> tuple[Path, ...]:
    """Make a folder for the node, unless it is there; shown. It and its parents that were made."""
    made = tuple(path for path in (folder, *folder.parents) if not path.exists())
    if not made:
        return ()
    typer.echo(f"+ mkdir -p {folder}")
    folder.mkdir(parents=True, mode=0o700)
    if owner is not None:
        typer.echo(f"+ chown {owner} {folder}")
        shutil.chown(folder, user=owner)
    return made


def remove_folder(folder: Path) -> None:
    """Remove a folder that was made for nothing, unless a node has written to it; shown."""
    if not any(folder.iterdir()):
        typer.echo(f"+ rmdir {folder}")
        folder.rmdir()


def _is_ours(file: Path) -> bool:
    try:
        return service_unit.MARK in file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False  # a link to nothing, or closed to whoever calls


def _is_free(state: Path) -> bool:
    """Whether a state folder is still to be made, empty, or a node's."""
    if not os.path.lexists(state):
        return True
    try:
        found = list(state.iterdir())
    except PermissionError:
        # Of a user that systemd makes up; nobody but a service has such a link.
        return state.is_symlink() and state.resolve().parent.name == "private"
    except OSError:
        return False
    return not found or any(path.name == NODE_KEY for path in found)


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
