"""The systemd unit of a node: what is in it, and with which commands it is put in and out of use.

Pure: neither writes nor runs anything (`cli/service.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.errors import ConfigError

MARK = "# Written by `neuroswarm service install`; `neuroswarm service uninstall` removes it."
"""First line of a unit that may be written over and removed."""

SYSTEM_UNITS = Path("/etc/systemd/system")
SYSTEM_CONFIG = Path("/etc/neuroswarm/node.toml")
SYSTEM_STATE = Path("/var/lib")
SYSTEM_SCRIPTS = Path("/etc/init.d")
"""Old scripts, of which systemd makes units of the same names."""

OTHER_SYSTEM_UNITS = (
    Path("/run/systemd/system"),
    Path("/run/systemd/generator"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
OTHER_USER_UNITS = (
    Path("/etc/systemd/user"),
    Path("/run/systemd/user"),
    Path("/usr/local/share/systemd/user"),
    Path("/usr/share/systemd/user"),
    Path("/usr/local/lib/systemd/user"),
    Path("/usr/lib/systemd/user"),
    Path("/lib/systemd/user"),
)
"""Folders of units that one in `SYSTEM_UNITS`, or in a user's own folder, takes the place of."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KINDS = re.compile(
    r".*\.(service|socket|target|timer|path|slice|scope|mount|automount|swap|device)"
)

STEPPED_RESTARTS_SINCE = 254
"""First version of systemd that waits longer from restart to restart."""

WATCHDOG_S = 180
STOP_S = 90
CREDENTIAL = "swarm-token"
ACCEPTED_CREDENTIAL = "accepted-token"

_SANDBOX = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0077"""
"""What the manager of a user may do too."""

_SYSTEM_SANDBOX = """\
CapabilityBoundingSet=
PrivateTmp=yes
ProtectSystem=strict
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes"""
"""No PrivateDevices: accelerators are devices. No MemoryDenyWriteExecute: torch compiles."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a node's unit depends on."""

    name: str
    """Of the unit, without `.service`."""
    command: tuple[str, ...]
    """The program and `-m neuroswarm node` with its flags, but for the state folder and token."""
    is_user: bool
    """For the manager of the user who calls, not of the system."""
    systemd: int
    """Version of systemd."""
    config: Path | None = None
    """File of settings, which has to be there when it starts."""
    token_file: Path | None = None
    accepted: tuple[Path, ...] = ()
    """Files of accepted tokens that the manager hands over, as it does the token's."""
    folder: Path | None = None
    """Working folder; None: the manager's default."""
    state_dir: Path | None = None
    """None: the manager's own for this unit, or the node's default under a user's manager."""
    run_as: str | None = None
    """User of the system's unit; None: one that systemd makes up."""
    groups: tuple[str, ...] = ()
    """Further groups of that user, for devices."""
    writable: tuple[Path, ...] = ()
    """Folders that it writes besides its state folder."""
    reads_home: bool = False
    """Whether program, settings or data are in a home folder."""
    ends: bool = False
    """Whether its run has a limit: then it is not started again after that."""

    def render(self) -> str:
        """The whole file."""
        lines = [MARK, *self._unit(), "", *self._service(), "", "[Install]"]
        lines.append(f"WantedBy={'default' if self.is_user else 'multi-user'}.target")
        return "\n".join(lines) + "\n"

    def _unit(self) -> Iterator[str]:
        yield "[Unit]"
        yield "Description=neuroswarm node: trains one model together with others"
        if not self.is_user:
            yield "Wants=network-online.target"
            yield "After=network-online.target time-sync.target"
        yield f"ConditionPathExists={_escape(self.command[0])}"
        if self.config is not None:
            yield f"ConditionPathExists={_escape(str(self.config))}"
        yield "StartLimitIntervalSec=0"

    def _service(self) -> Iterator[str]:
        yield "[Service]"
        yield "Type=notify"
        words = (_quote_program(self.command[0]), *map(quote_argument, self.command[1:]))
        yield f"ExecStart={' '.join(words)}{self._places()}"
        if self.folder is not None:
            yield f"WorkingDirectory={_escape(str(self.folder))}"
        yield f"Restart={'on-failure' if self.ends else 'always'}"
        if self.systemd >= STEPPED_RESTARTS_SINCE:
            yield from ("RestartSec=5", "RestartSteps=6", "RestartMaxDelaySec=5min")
        else:
            yield "RestartSec=30"
        yield f"WatchdogSec={WATCHDOG_S}"
        yield "TimeoutStartSec=600"
        yield f"TimeoutStopSec={STOP_S}"
        yield "KillMode=mixed"
        yield from ("Nice=10", "CPUWeight=20", "IOWeight=20", "OOMScoreAdjust=500")
        yield "LimitNOFILE=65536"
        if not self.is_user:
            for name, secret in self._secrets():
                yield f"LoadCredential={name}:{_escape(str(secret))}"
            yield from self._identity()
        yield _SANDBOX

    def _identity(self) -> Iterator[str]:
        yield f"User={self.run_as}" if self.run_as else "DynamicUser=yes"
        if self.groups:
            yield f"SupplementaryGroups={' '.join(self.groups)}"
        if self.state_dir is None:
            yield from (f"StateDirectory={self.name}", "StateDirectoryMode=0700")
        home = self.state_dir or SYSTEM_STATE / self.name
        yield f"Environment={quote(f'HOME={home}')}"
        folders = [] if self.state_dir is None else [self.state_dir]
        yield from (f"ReadWritePaths={quote(str(path))}" for path in [*folders, *self.writable])
        yield f"ProtectHome={'read-only' if self.reads_home else 'yes'}"
        yield _SYSTEM_SANDBOX

    def _places(self) -> str:
        """The flags whose values the manager knows, or that are not the node's own defaults."""
        flags = ""
        if self.state_dir is not None:
            flags += f" --state-dir {quote_argument(str(self.state_dir))}"
        elif not self.is_user:
            flags += " --state-dir ${STATE_DIRECTORY}"
        if self.token_file is not None:
            given = f"${{CREDENTIALS_DIRECTORY}}/{CREDENTIAL}"
            there = quote_argument(str(self.token_file)) if self.is_user else given
            flags += f" --token-file {there}"
        for name, _ in self._secrets():
            if name != CREDENTIAL:
                flags += f" --accept-token-file ${{CREDENTIALS_DIRECTORY}}/{name}"
        return flags

    def _secrets(self) -> Iterator[tuple[str, Path]]:
        """Files that the manager of the system reads for the node, by the names it gets."""
        if self.token_file is not None:
            yield CREDENTIAL, self.token_file
        for number, file in enumerate(self.accepted, 1):
            yield f"{ACCEPTED_CREDENTIAL}-{number}", file


def read_name(text: str) -> str:
    """The name of a unit, which may be given with `.service`.

    Raises:
        ConfigError: it cannot name a unit, or names one of another kind.
    """
    name = text.removesuffix(".service")
    if not NAME.fullmatch(name):
        raise ConfigError(f"{text!r} cannot name a unit (letters, digits, '_', '.' and '-')")
    if _KINDS.fullmatch(name):
        raise ConfigError(f"{text!r} cannot name a service: leave its ending out")
    return name


def probe_command(*, is_user: bool) -> list[str]:
    """What fails unless the manager answers; changes nothing."""
    return [*_control(is_user), "show", "--property=Version"]


def install_commands(name: str, *, is_user: bool, starts: bool) -> list[list[str]]:
    """What takes a unit that has been written into use."""
    control = _control(is_user)
    commands = [[*control, "daemon-reload"], [*control, "enable", f"{name}.service"]]
    # It starts when the node takes part, which may be in hours: nobody waits for that.
    start = [*control, "restart", "--no-block", f"{name}.service"]
    return [*commands, start] if starts else commands


def stop_commands(name: str, *, is_user: bool) -> list[list[str]]:
    """What takes a unit out of use, before its file is removed."""
    return [[*_control(is_user), "disable", "--now", f"{name}.service"]]


def forget_commands(*, is_user: bool) -> list[list[str]]:
    """What has the manager forget a unit whose file was removed."""
    return [[*_control(is_user), "daemon-reload"]]


def status_command(name: str, *, is_user: bool) -> list[str]:
    """What says how a unit is."""
    return [*_control(is_user), "status", "--no-pager", f"{name}.service"]


def _control(is_user: bool) -> list[str]:
    return ["systemctl", "--user"] if is_user else ["systemctl"]


def quote(word: str) -> str:
    """A word for systemd, so that nothing in it is a quote or a specifier.

    Raises:
        ConfigError: it has a control character, such as a line break, which no unit can hold.
    """
    escaped = _escape(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if re.search(r"[\s\"';\\]", word) or not word else escaped


def quote_argument(word: str) -> str:
    """The same for a word of a command, in which `$` begins a variable."""
    return quote(word).replace("$", "$$")


def _quote_program(path: str) -> str:
    """The first word of a command, in which `$` is no variable and nothing can be escaped."""
    if '"' in path or "\\" in path:
        raise ConfigError(
            f"the program {path} has a quote or a backslash in its path, which systemd cannot "
            "start: install it in another folder"
        )
    return quote(path)


def _escape(text: str) -> str:
    """A text in which nothing is a specifier; ConfigError as `quote` has it."""
    if not text.isprintable():
        raise ConfigError(f"{text!r} has a control character, which no unit of systemd can hold")
    return text.replace("%", "%%")


def shown(commands: Sequence[Sequence[str]]) -> list[str]:
    """Commands for people, as they would type them."""
    return [" ".join(command) for command in commands]
