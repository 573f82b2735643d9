"""`neuroswarm service`: a node as a systemd unit, for machines outside Docker.

Shows every file that it writes and every command that it runs; `cli/service_unit.py` knows them.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroswarm.cli import service_unit, systemd
from neuroswarm.cli.options import read_path
from neuroswarm.cli.service_files import (
    find_unit_file,
    make_folder,
    remove_folder,
    remove_unit,
    require_new_name,
    require_ours,
    require_rights,
    write_unit,
)
from neuroswarm.cli.service_flags import CONFIG_VARIABLE, Typed, read_typed
from neuroswarm.cli.service_modules import require_program
from neuroswarm.cli.service_places import (
    MODULE,
    Place,
    find_places,
    is_in_home,
    require_folders,
    require_lasting,
    require_open,
    require_there,
)
from neuroswarm.errors import ConfigError, SystemdError
from neuroswarm.hardware.accounts import NOBODY, find_account, find_device_groups, is_root

if TYPE_CHECKING:
    from neuroswarm.config import RunConfig

app = typer.Typer(help="Run a node as a systemd service of this machine.")

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
NameOption = Annotated[
    str, typer.Option(help="Name of the unit; the swarm's is --set network.name=NAME.")
]
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
    is_user, name = _is_user(user), service_unit.read_name(name)
    version = systemd.find_version()
    run_as = _check_user(run_as, is_user)
    places = {
        "config": _find_config(config, is_user),
        "token_file": token_file,
        "state_dir": state_dir,
    }
    typed = read_typed(context.args, places, os.environ, is_user=is_user)
    _check_secrets(typed)
    require_program(is_user=is_user)
    used = find_places(typed, is_user=is_user)
    require_there(typed.config, used)
    require_folders(typed, used)
    if not is_user:
        _require_usable(typed, used, run_as)
    _install(
        _plan(typed, used, name, version, run_as, is_user), starts=not no_start, dry_run=dry_run
    )
    _remark(typed)


@app.command()
def uninstall(
    *, user: UserOption = None, name: NameOption = "neuroswarm", dry_run: DryRunOption = False
) -> None:
    """Stop the service and remove its unit; state, settings and token are kept."""
    is_user, name = _is_user(user), service_unit.read_name(name)
    file = find_unit_file(name, is_user=is_user)
    if not os.path.lexists(file):
        raise ConfigError(f"no such unit: {file}")
    require_ours(file)
    before = service_unit.stop_commands(name, is_user=is_user)
    after = service_unit.forget_commands(is_user=is_user)
    if dry_run:
        systemd.print_commands([*before, ["rm", str(file)], *after])
        return
    require_rights(file)
    failure = _try(before)
    remove_unit(file)
    failure = failure or _try(after)
    typer.echo("the state folder is kept")
    if failure is not None:
        raise type(failure)(
            f"the unit is removed, but {failure}; if its node still runs, it goes on until it is "
            "stopped or the machine restarts"
        )


@app.command()
def show(*, user: UserOption = None, name: NameOption = "neuroswarm") -> None:
    """Print the unit that is installed."""
    file = find_unit_file(service_unit.read_name(name), is_user=_is_user(user))
    try:
        typer.echo(f"# {file}\n{file.read_text(encoding='utf-8')}", nl=False)
    except FileNotFoundError as error:
        raise ConfigError(f"no such unit: {file} (neuroswarm service install writes it)") from error


@app.command()
def status(*, user: UserOption = None, name: NameOption = "neuroswarm") -> None:
    """Say how the service is, as systemd knows it; `neuroswarm status` asks the node itself."""
    systemd.show_status(service_unit.read_name(name), is_user=_is_user(user))


# -- what the machine and the caller's settings say ----------------------------------


def _is_user(asked: bool | None) -> bool:
    if sys.platform != "linux":
        raise ConfigError("systemd is Linux's: there are no such services here")
    return not is_root() if asked is None else asked


def _find_config(given: Path | None, is_user: bool) -> Path | None:
    from neuroswarm.config.setting_paths import make_whole

    named = given or Path(os.environ.get(CONFIG_VARIABLE) or "")
    if named != Path():
        return make_whole(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    usual = home / "neuroswarm" / "node.toml" if is_user else service_unit.SYSTEM_CONFIG
    return make_whole(usual) if usual.exists() else None


def _check_secrets(typed: Typed) -> None:
    """AdmissionError if a file holds no token; ConfigError if others than its owner can read it."""
    from neuroswarm.cli.swarm_token import check_token, read_token_file
    from neuroswarm.identity.token_ring import read_accepted

    files = [*typed.accepted, *typed.config.network.accepted_token_files]
    secrets = [file for file in files if not read_accepted(file).is_open]
    if typed.token_file is not None:
        check_token(read_token_file(typed.token_file))
        secrets.append(typed.token_file)
    for file in secrets:
        if file.expanduser().stat().st_mode & 0o077:
            raise ConfigError(f"{file}: others than its owner can read it (chmod 600 {file})")


def _check_user(name: str | None, is_user: bool) -> str | None:
    if name is not None and is_user:
        raise ConfigError("--run-as is for units of the system (--system)")
    if name is not None and find_account(name) is None:
        raise ConfigError(f"no such user: {name}")
    return name


def _require_usable(typed: Typed, used: list[Place], run_as: str | None) -> None:
    """ConfigError if a unit of the system hides what the node uses, or its user may not use it."""
    secrets = [Place("the token", file) for file in (typed.token_file, *typed.accepted) if file]
    require_lasting([*used, *secrets])
    account = NOBODY if run_as is None else find_account(run_as)
    assert account is not None, "looked up before"
    for place in used:
        if place.is_written and run_as is None:
            raise ConfigError(
                f"{place.what} of a system unit ({place.path}) needs the user that owns it: give "
                "--run-as"
            )
    who = "the user that systemd makes up for the unit" if run_as is None else f"user {run_as}"
    require_open(used, account, who)


def _plan(
    typed: Typed, used: list[Place], name: str, version: int, run_as: str | None, is_user: bool
) -> service_unit.Unit:
    from neuroswarm.config.setting_paths import make_whole

    python = Path(sys.executable)  # itself may be a link, by which it knows where it is installed
    program = str(make_whole(python.parent) / python.name)
    flags = [] if typed.file is None else ["--config", str(typed.file)]
    written = tuple(place.path for place in used if place.is_written)
    return service_unit.Unit(
        name=name,
        command=(program, "-m", "neuroswarm", "node", *flags, *typed.flags),
        is_user=is_user,
        systemd=version,
        config=typed.file,
        token_file=typed.token_file,
        accepted=typed.accepted,
        folder=next((place.path for place in used if place.what == MODULE), None),
        state_dir=typed.state_dir,
        run_as=run_as,
        groups=() if is_user else find_device_groups(),
        writable=tuple(path for path in written if path != typed.state_dir),
        reads_home=is_in_home(used),
        ends=_ends(typed.config.run),
    )


def _ends(run: RunConfig) -> bool:
    return any(limit is not None for limit in (run.rounds, run.minutes, run.tokens, run.until_loss))


# -- what it does --------------------------------------------------------------------


def _install(unit: service_unit.Unit, *, starts: bool, dry_run: bool) -> None:
    file = find_unit_file(unit.name, is_user=unit.is_user)
    require_ours(file)
    if not file.exists():
        has_own_state = unit.state_dir is not None
        require_new_name(unit.name, is_user=unit.is_user, has_own_state=has_own_state)
    commands = service_unit.install_commands(unit.name, is_user=unit.is_user, starts=starts)
    if not dry_run:
        require_rights(file)
        systemd.require_manager(is_user=unit.is_user)
    typer.echo(f"# {file}\n{unit.render()}", nl=False)
    if dry_run:
        systemd.print_commands(commands)
        return
    before = file.read_text(encoding="utf-8") if file.exists() else None
    folders = () if unit.state_dir is None else (unit.state_dir,)
    made = [make_folder(path, unit.run_as) for path in (*folders, *unit.writable)]
    write_unit(file, unit.render())
    try:
        systemd.run_all(commands)
    except SystemdError:
        _undo(unit, file, before)
        for folder in itertools.chain(*reversed(made)):
            remove_folder(folder)
        raise
    if unit.is_user:
        typer.echo("to have it run while you are not logged in: loginctl enable-linger")


def _undo(unit: service_unit.Unit, file: Path, before: str | None) -> None:
    """Put the unit that was there before back, or none; what systemctl says to that is shown."""
    if before is None:
        failure = _try(service_unit.stop_commands(unit.name, is_user=unit.is_user))
        remove_unit(file)
    else:
        failure = None
        write_unit(file, before)
    failure = _try(service_unit.forget_commands(is_user=unit.is_user)) or failure
    if failure is not None:
        typer.echo(f"while undoing it: {failure}", err=True)


def _try(commands: Sequence[Sequence[str]]) -> SystemdError | None:
    """Run commands; what went wrong, if something did."""
    try:
        systemd.run_all(commands)
    except SystemdError as error:
        return error
    return None


def _remark(typed: Typed) -> None:
    """Say what nobody may have meant."""
    if typed.token_file is None:
        typer.echo(
            "no swarm token: the service's swarm is OPEN to everybody who can reach its ports "
            "(`neuroswarm token new` makes a token, --token-file takes it)",
            err=True,
        )
    if _ends(typed.config.run):
        typer.echo(
            "its run has a limit: it is not started again when it ends, but begins anew at the "
            "next boot, until `neuroswarm service uninstall`",
            err=True,
        )
