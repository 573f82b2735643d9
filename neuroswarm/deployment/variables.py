"""Variables that the stack and compose files take, and the defaults written there.

Refuses to read the environment; it is given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from neuroswarm.deployment import names
from neuroswarm.deployment.command import Output, Word, docker
from neuroswarm.deployment.labels import TRACKER
from neuroswarm.errors import ConfigError

DEFAULT_IMAGE: Final = "neuroswarm:latest"
DEFAULT_STACK: Final = "neuroswarm"
DEFAULT_SECRET: Final = "neuroswarm_token"

STACK_VARIABLES: Final = (
    "TRACKER_HOST",
    "IMAGE",
    "TOKEN_SECRET",
    "SETTINGS_VERSION",
    "NODE_PORT",
    "GRPC_PORT",
    "HEARTBEAT_PORT",
    "MTU",
)
"""Names in stack.yml and stack-overlay.yml."""

TRACKER_ADDRESS: Final = Output(
    docker(
        "node",
        "inspect",
        "--format",
        "{{.Status.Addr}}",
        Output(
            docker("node", "ls", "--quiet", "--filter", f"node.label={TRACKER}=true"), is_list=True
        ),
    )
)
"""Address of the machine that has the tracker, as the docker swarm knows it."""


FLAGS: Final = {
    "TRACKER_HOST": "--tracker-host",
    "IMAGE": "--image",
    "TOKEN_SECRET": "--secret",
    "SETTINGS_VERSION": "--settings-version",
    "CONTEXT": "--build",
}
"""Flags of their own that variables have."""

_DEFAULTS: Final[Mapping[str, Word]] = {
    "IMAGE": DEFAULT_IMAGE,
    "TOKEN_SECRET": DEFAULT_SECRET,
    "SETTINGS_VERSION": "1",
    "TRACKER_HOST": TRACKER_ADDRESS,
}
_PORTS: Final = ("NODE_PORT", "GRPC_PORT", "HEARTBEAT_PORT")
_DEFAULT_PORTS: Final = {"NODE_PORT": "7101", "GRPC_PORT": "8101"}
_TRACKER_PORT = 7100
"""In stack.yml, whose tracker and nodes share the ports of one machine."""
_MIN_MTU = 68
"""What every IPv4 network bears (RFC 791, section 3.2)."""
_CONFIG_NAME = "neuroswarm-node-"
"""What SETTINGS_VERSION is put behind."""


def choose_variables(
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    named: Collection[str],
    *,
    are_ours: bool = True,
    has_defaults: bool = True,
) -> dict[str, Word]:
    """What a stack file gets: what was given, else what the environment has, else the default.

    All of it is passed on by name, so that nothing that counts stays unseen in the environment.

    Args:
        given: Values by the variable's name, None where none was given.
        environment: Looked at for the names of our stack files; an empty value is none.
        named: Variables that the stack files name; others are left out. Who names TRACKER_HOST
            gets the address of the machine with the tracker's label by default.
        are_ours: Whether the files are those that come with neuroswarm; in others a variable may
            mean anything, so that its value is left to docker.
        has_defaults: False for compose, which has values of an `.env` file too: ours would win.

    Raises:
        ConfigError: a value was given that the files have no use for, or docker or a node would
            refuse one in our files.
    """
    for name, value in given.items():
        if value is not None and name not in named:
            raise ConfigError(
                f"no variable of the stack files: {name}"
                f"{f', which {FLAGS[name]} is for' if name in FLAGS else ''} "
                f"(there are: {', '.join(named) or 'none'})"
            )
    chosen: dict[str, Word] = {}
    for name in dict.fromkeys((*STACK_VARIABLES, *given)):
        said = environment.get(name) if name in STACK_VARIABLES else None
        default = _DEFAULTS.get(name) if has_defaults else None
        for word in (given.get(name), said or None, default):
            if word is not None and name in named:
                chosen[name] = word
                break
    if are_ours:
        for name, word in chosen.items():
            if isinstance(word, str):
                _check(name, word)
        _require_own_ports(chosen, named)
    return chosen


def read_variables(assignments: Sequence[str]) -> dict[str, str]:
    """What NAME=VALUE pairs say; ConfigError if one is no such pair, or two are of one name."""
    read: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f"no variable: {text!r} (write NAME=VALUE)")
        if name in read:
            raise ConfigError(f"{name} is given twice: {read[name]!r} and {value!r} (give one)")
        read[name] = value
    return read


def join_given(
    flags: Mapping[str, str | None], variables: Mapping[str, str]
) -> dict[str, str | None]:
    """What flags and NAME=VALUE pairs give together; ConfigError if both give one variable."""
    for name in variables:
        if flags.get(name) is not None:
            raise ConfigError(
                f"{name} is given twice: {FLAGS[name]} {flags[name]} and --variable "
                f"{name}={variables[name]} (give one)"
            )
    return {**flags, **variables}


def _check(name: str, value: str) -> None:
    """ConfigError if what our stack files do with the variable cannot work with this value."""
    if name in _PORTS:
        names.require_number(name, value, 1, names.MAX_PORT)
    elif name == "MTU":
        names.require_number(name, value, _MIN_MTU, 65535)
    elif name == "TRACKER_HOST":
        names.require_host(name, value)
    elif name == "IMAGE":
        names.require_image(value)
    elif name == "TOKEN_SECRET":
        names.require_secret(value)
    elif name == "SETTINGS_VERSION":
        names.require_object("SETTINGS_VERSION", value, prefix=_CONFIG_NAME)


def _require_own_ports(chosen: Mapping[str, Word], named: Collection[str]) -> None:
    """ConfigError if two of HTTP, gRPC and the tracker are to have one TCP port of a machine."""
    used = {
        name: int(str(chosen.get(name, default)))
        for name, default in _DEFAULT_PORTS.items()
        if name in named
    }
    for name, port in used.items():
        if port == _TRACKER_PORT:
            raise ConfigError(f"{name} is the tracker's port: {port} (give another)")
    if len(set(used.values())) < len(used):
        raise ConfigError(
            f"NODE_PORT and GRPC_PORT are one: {used['NODE_PORT']} (give different ones)"
        )
