"""Variables that the stack and compose files take, and the defaults written there.

Refuses to read the environment; it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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


def choose_variables(
    given: Mapping[str, Word | None], environment: Mapping[str, str], *, needs_tracker: bool
) -> dict[str, Word]:
    """What a stack file gets: what was given, else what the environment has, else the default.

    All of it is passed on by name, so that nothing that counts stays unseen in the environment.

    Args:
        given: Values by the variable's name, None where none was given.
        environment: Looked at for the names of our stack files.
        needs_tracker: Whether there has to be an address of the tracker: by default that of the
            machine with the label.
    """
    defaults: dict[str, Word] = {
        "IMAGE": DEFAULT_IMAGE,
        "TOKEN_SECRET": DEFAULT_SECRET,
        "SETTINGS_VERSION": "1",
    }
    if needs_tracker:
        defaults["TRACKER_HOST"] = TRACKER_ADDRESS
    chosen: dict[str, Word] = {}
    for name in dict.fromkeys((*STACK_VARIABLES, *given)):
        for value in (given.get(name), environment.get(name), defaults.get(name)):
            if value is not None:
                chosen[name] = value
                break
    return chosen


def read_variables(assignments: Sequence[str], *, allows_others: bool) -> dict[str, str]:
    """What NAME=VALUE pairs say.

    Args:
        assignments: The pairs.
        allows_others: Whether names are allowed that our stack files do not have.

    Raises:
        ConfigError: this is no such pair, or a name that is not allowed.
    """
    read = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"no variable: {text!r} (write NAME=VALUE)")
        if name not in STACK_VARIABLES and not allows_others:
            raise ConfigError(
                f"no variable of the stack files: {name} (there are: {', '.join(STACK_VARIABLES)})"
            )
        read[name] = value
    return read
