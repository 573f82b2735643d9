"""Asks systemd of this machine, or of this user, by `systemctl`; shows what changes something.

Refuses to know what is in a unit (`cli/service_unit.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import typer

from neuroswarm.cli import service_unit
from neuroswarm.errors import SystemdError, SystemdUnavailable

COMMAND_S = 180.0
"""Longest that `systemctl` may take: a start waits until the node takes part, a stop for it."""

_IS_STOPPED, _IS_UNKNOWN = 3, 4
"""What `systemctl status` ends with for a unit that does not run, and for one that is not there."""


def find_version() -> int:
    """Version of the systemd that is installed; 0 if it does not say.

    Raises:
        SystemdUnavailable: there is none.
    """
    said = _ask(["systemctl", "--version"]).stdout.split()
    return int(said[1]) if len(said) > 1 and said[1].isdecimal() else 0


def require_manager(*, is_user: bool) -> None:
    """SystemdUnavailable with what is missing, unless the manager of the units answers."""
    done = _ask(service_unit.probe_command(is_user=is_user))
    if not done.returncode:
        return
    said = done.stderr.strip()
    if not is_user:
        raise SystemdUnavailable(
            f"systemd of this machine does not answer: {said} (was the machine booted with it? In "
            "a container it is not)"
        )
    raise SystemdUnavailable(f"systemd of this user does not answer: {said} ({_what_is_missing()})")


def _what_is_missing() -> str:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if not folder:
        what = "XDG_RUNTIME_DIR is not set, as after su and sudo"
    elif not (bus := Path(folder) / "bus").exists():
        what = f"no session bus at {bus}"
    else:
        what = "it has a session bus"
    return (
        f"{what}: log in as this user, by ssh say, or have root run `loginctl enable-linger USER` "
        "and then export XDG_RUNTIME_DIR=/run/user/$(id -u)"
    )


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run one after the other, shown before.

    Raises:
        SystemdError: one failed, with its words.
        SystemdUnavailable: there is no such program.
    """
    for command in commands:
        print_commands([command])
        done = _ask(command)
        if done.returncode:
            raise SystemdError(
                f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()}"
            )


def print_commands(commands: Sequence[Sequence[str]]) -> None:
    """Show commands, as they would be typed."""
    for line in service_unit.shown(commands):
        typer.echo(f"+ {line}")


def show_status(name: str, *, is_user: bool) -> None:
    """Let systemd print how a unit is; SystemdUnavailable unless it runs."""
    command = service_unit.status_command(name, is_user=is_user)
    print_commands([command])
    code = subprocess.run([_require(command[0]), *command[1:]], check=False).returncode
    if code:
        raise SystemdUnavailable(
            {
                _IS_STOPPED: f"{name}.service does not run",
                _IS_UNKNOWN: f"no such unit: {name}.service (neuroswarm service install)",
            }.get(code, f"systemctl cannot say how {name}.service is (exit code {code})")
        )


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    program = _require(command[0])
    try:
        return subprocess.run(
            [program, *command[1:]], check=False, capture_output=True, text=True, timeout=COMMAND_S
        )
    except subprocess.TimeoutExpired as error:
        said = f"{' '.join(command)} did not end within {COMMAND_S:.0f} s"
        raise SystemdError(said) from error


def _require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise SystemdUnavailable(f"no {program} here: this machine is not run by systemd")
    return found
