"""`neuroswarm service`: a node as a systemd unit, for machines outside Docker.

Shows every file that it writes and every command that it runs; `cli/service_unit.py` knows them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli import service_unit
from neuroswarm.cli.options import read_path
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.accounts import find_device_groups, has_user, is_root

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings

app = typer.Typer(help="Run a node as a systemd service of this machine.")

COMMAND_S = 180.0
"""Longest that `systemctl` may take: a start waits until the node takes part, a stop for it."""

UserOption = Annotated[
    bool | None,
    typer.Option(
        "--user/--system",
        help="For your own systemd, or that of the machine. Default: of the machine as root.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with settings. Default: /etc/neuroswarm/node.toml, or "
        "~/.config/neuroswarm/node.toml with --user, if it is there.",
        parser=read_path,
        metavar="FILE",
        show_default=False,
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        help="File with the swarm's token, readable by its owner alone.",
        parser=read_path,
        metavar="FILE",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for key and checkpoints. Default: /var/lib/NAME, or the node's own "
        "with --user.",
        parser=read_path,
        metavar="FOLDER",
        show_default=False,
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(help="User of a system unit. Default: one that systemd makes up."),
]
NameOption = Annotated[str, typer.Option(help="Name of the unit.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the unit and the commands; change nothing.")
]


@app.callback(invoke_without_command=True)
def service(context: typer.Context) -> None:
    """Run a node as a systemd service of this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def install(
    context: typer.Context,
    *,
    user: UserOption = None,
    name: NameOption = "neuroswarm",
    config: ConfigOption = None,
    token_file: TokenOption = None,
    state_dir: StateOption = None,
    run_as: RunAsOption = None,
    no_start: Annotated[bool, typer.Option("--no-start", help="Start it at boot only.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Write a unit and start it, now and at every boot; further flags are those of the node.

    Examples:
      neuroswarm service install --token-file /etc/neuroswarm/token --tracker http://10.0.0.5:7101

      neuroswarm service install --user --dry-run
    """
    is_user = _is_user(user)
    _check_name(name)
    config = _find_config(config, is_user)
    flags = [] if config is None else ["--config", str(config)]
    flags += context.args
    merged = _check_flags(flags)
    token_file = token_file or merged.config.network.token_file
    unit = service_unit.Unit(
        name=name,
        command=(sys.executable, "-m", "neuroswarm", "node", *flags),
        is_user=is_user,
        systemd=_find_version(),
        config=config,
        token_file=None if token_file is None else _check_token_file(token_file),
        state_dir=None if state_dir is None else state_dir.absolute(),
        run_as=_check_user(run_as, is_user),
        groups=() if is_user else find_device_groups(),
        writable=_find_writable(merged),
        reads_home=_reads_home(merged, config),
        ends=_ends(merged),
    )
    _require_readable(unit)
    _install(unit, starts=not no_start, dry_run=dry_run)


@app.command()
def uninstall(
    *, user: UserOption = None, name: NameOption = "neuroswarm", dry_run: DryRunOption = False
) -> None:
    """Stop the service and remove its unit; state, settings and token are kept."""
    is_user = _is_user(user)
    _check_name(name)
    file = _unit_file(name, is_user)
    if not file.exists():
        raise ConfigError(f"no such unit: {file}")
    _require_ours(file)
    before = service_unit.stop_commands(name, is_user=is_user)
    after = service_unit.forget_commands(is_user=is_user)
    if dry_run:
        _print_commands([*before, ["rm", str(file)], *after])
        return
    _run_all(before)
    typer.echo(f"+ rm {file}")
    file.unlink()
    _run_all(after)
    typer.echo("the state folder is kept")


@app.command()
def show(*, user: UserOption = None, name: NameOption = "neuroswarm") -> None:
    """Print the unit that is installed."""
    _check_name(name)
    file = _unit_file(name, _is_user(user))
    try:
        typer.echo(f"# {file}\n{file.read_text(encoding='utf-8')}", nl=False)
    except FileNotFoundError as error:
        raise ConfigError(f"no such unit: {file} (neuroswarm service install writes it)") from error


@app.command()
def status(*, user: UserOption = None, name: NameOption = "neuroswarm") -> None:
    """Say how the service is, as systemd knows it; `neuroswarm status` asks the node itself."""
    _check_name(name)
    command = service_unit.status_command(name, is_user=_is_user(user))
    typer.echo(f"+ {' '.join(command)}")
    done = subprocess.run([_require(command[0]), *command[1:]], check=False)
    raise typer.Exit(done.returncode)


# -- what the machine and the caller's settings say ----------------------------------


def _is_user(asked: bool | None) -> bool:
    if sys.platform != "linux":
        raise ConfigError("systemd is Linux's: there are no such services here")
    return not is_root() if asked is None else asked


def _unit_file(name: str, is_user: bool) -> Path:
    if not is_user:
        return service_unit.SYSTEM_UNITS / f"{name}.service"
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "systemd" / "user" / f"{name}.service"


def _check_name(name: str) -> None:
    if not service_unit.NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a unit (letters, digits, '_', '.' and '-')")


def _find_config(given: Path | None, is_user: bool) -> Path | None:
    if given is not None:
        return given.absolute()
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    usual = home / "neuroswarm" / "node.toml" if is_user else service_unit.SYSTEM_CONFIG
    return usual if usual.exists() else None


def _check_token_file(file: Path) -> Path:
    """The file's whole path; AdmissionError or ConfigError if it is no good, or others read it."""
    from neuroswarm.cli.swarm_token import check_token, read_token_file

    check_token(read_token_file(file))
    if file.stat().st_mode & 0o077:
        raise ConfigError(f"{file}: others than its owner can read it (chmod 600 {file})")
    return file.absolute()


def _check_flags(flags: Sequence[str]) -> Settings:
    """What a node would make of the flags; errors as it has them, before anything is written."""
    from neuroswarm.cli.config import merge, read_node_flags

    parameters = read_node_flags(list(flags))
    if parameters.get("token") is not None:
        raise ConfigError("--token would be for all to read in the unit: give --token-file")
    return merge(parameters, {})


def _require_readable(unit: service_unit.Unit) -> None:
    """ConfigError if the user that systemd makes up cannot run or keep what it needs."""
    if unit.is_user or unit.run_as is not None:
        return
    if unit.state_dir is not None:
        raise ConfigError("--state-dir of a system unit needs the user that owns it: give --run-as")
    for path in (Path(sys.executable), Path(sys.executable).resolve(), unit.config):
        closed = path and _find_closed(path)
        if closed:
            raise ConfigError(
                f"{closed} is closed to the user that systemd makes up for the unit: give --run-as "
                f"a user that can read {path}, or open it (chmod o+rX {closed})"
            )


def _find_closed(path: Path) -> Path | None:
    """The first part of a path that others than its owner and group cannot pass or read."""
    for part in reversed(path.parents):
        if not part.stat().st_mode & 0o001:
            return part
    return None if path.stat().st_mode & 0o004 else path


def _check_user(name: str | None, is_user: bool) -> str | None:
    if name is not None and is_user:
        raise ConfigError("--run-as is for units of the system (--system)")
    if name is not None and not has_user(name):
        raise ConfigError(f"no such user: {name}")
    return name


def _find_writable(merged: Settings) -> tuple[Path, ...]:
    folder = merged.config.checkpoint.dir
    return () if folder is None else (folder.expanduser().absolute(),)


def _reads_home(merged: Settings, config: Path | None) -> bool:
    data, base = merged.config.data.path, merged.config.lora.base
    homes = (Path("/home"), Path("/root"), Path.home())
    program = (Path(sys.executable), Path(sys.executable).resolve(), Path(__file__))
    used = [*program, config, data, base]
    return any(path.absolute().is_relative_to(home) for path in used if path for home in homes)


def _ends(merged: Settings) -> bool:
    run = merged.config.run
    return any(limit is not None for limit in (run.rounds, run.minutes, run.tokens, run.until_loss))


# -- what it does --------------------------------------------------------------------


def _install(unit: service_unit.Unit, *, starts: bool, dry_run: bool) -> None:
    file = _unit_file(unit.name, unit.is_user)
    _require_ours(file)
    commands = service_unit.install_commands(unit.name, is_user=unit.is_user, starts=starts)
    typer.echo(f"# {file}\n{unit.render()}", nl=False)
    if dry_run:
        _print_commands(commands)
        return
    _make_folder(unit)
    _write(file, unit.render())
    _run_all(commands)
    if unit.is_user:
        typer.echo("to have it run while you are not logged in: loginctl enable-linger")


def _require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ConfigError(f"no {program} here: this machine is not run by systemd")
    return found


def _find_version() -> int:
    said = subprocess.run(
        [_require("systemctl"), "--version"], check=True, capture_output=True, text=True
    ).stdout.split()
    return int(said[1]) if len(said) > 1 and said[1].isdecimal() else 0


def _require_ours(file: Path) -> None:
    """ConfigError if there is a unit of that name that this command has not written."""
    if file.exists() and service_unit.MARK not in file.read_text(encoding="utf-8"):
        raise ConfigError(f"{file} is not of `neuroswarm service install`: give another --name")


def _make_folder(unit: service_unit.Unit) -> None:
    folder = unit.state_dir
    if folder is None or folder.exists():
        return
    typer.echo(f"+ mkdir -p {folder}")
    folder.mkdir(parents=True, mode=0o700)
    if unit.run_as is not None:
        typer.echo(f"+ chown {unit.run_as} {folder}")
        shutil.chown(folder, user=unit.run_as)


def _write(file: Path, text: str) -> None:
    typer.echo(f"+ write {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    temporary.replace(file)


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for line in service_unit.shown(commands):
        typer.echo(f"+ {line}")


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    """Run one after the other, shown before; ConfigError with its words if one fails."""
    for command in commands:
        _print_commands([command])
        done = subprocess.run(
            [_require(command[0]), *command[1:]],
            check=False, capture_output=True, text=True, timeout=COMMAND_S,
        )  # fmt: skip
        if done.returncode:
            raise ConfigError(
                f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()}"
            )
