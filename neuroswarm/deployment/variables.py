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
    given: Mapping[str, Word | None], environment: Mapping[str, str]
) -> dict[str, Word]:
    """What a stack file gets: what was given, else what the environment has under that name.

    All of it is passed on by name, so that nothing that counts stays unseen in the environment.
    """
    chosen: dict[str, Word] = {}
    for name in (*STACK_VARIABLES, *(name for name in given if name not in STACK_VARIABLES)):
        value = given.get(name)
        if value is None:
            value = environment.get(name)
        if value is not None:
            chosen[name] = value
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
