"""Which docker commands make a docker swarm, take machines in, label them, and end it all.

Refuses to run them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from neuroswarm.deployment.command import Command, Fed, Output, Step, UntilEmpty, docker
from neuroswarm.deployment.labels import TRACKER
from neuroswarm.errors import ConfigError, DockerUnavailable

SWARM_PORT = 2377

READ_ENGINE = docker("version", "--format", "{{.Server.Version}}")
"""Fails without an engine; `docker info` of older clients does not."""
READ_SWARM = docker("info", "--format", "{{json .Swarm}}")
READ_JOIN_TOKEN = docker("swarm", "join-token", "--quiet", "worker")
READ_SECRETS = docker("secret", "ls", "--format", "{{.Name}}")
THIS_NODE = Output(docker("node", "inspect", "self", "--format", "{{.ID}}"))


def plan_init(advertise: str | None, *, is_manager: bool) -> list[Command]:
    """Make a docker swarm, unless this engine manages one already."""
    if is_manager:
        return []
    where = [] if advertise is None else ["--advertise-addr", advertise]
    return [docker("swarm", "init", *where)]


def plan_secret(name: str, token: Fed) -> list[Command]:
    """Make the secret with the swarm's token, which never stands in an argument list."""
    return [docker("secret", "create", name, "-", fed=token)]


def plan_tracker() -> list[Command]:
    """Let this machine have the tracker."""
    return [docker("node", "update", "--label-add", f"{TRACKER}=true", THIS_NODE)]


def plan_join(address: str, join_token: str, advertise: str | None) -> list[Command]:
    """Take this machine into the docker swarm of the manager at `address`."""
    where = [] if advertise is None else ["--advertise-addr", advertise]
    return [docker("swarm", "join", *where, "--token", join_token, with_port(address))]


def plan_label(nodes: Sequence[str], labels: Mapping[str, str]) -> list[Command]:
    """Set these labels on each of the machines."""
    flags = [word for name, value in labels.items() for word in ("--label-add", f"{name}={value}")]
    return [docker("node", "update", *flags, node) for node in nodes]


def plan_remove(stack: str, *, with_volumes: bool) -> list[Step]:
    """End the stack; with `with_volumes`, what its nodes keep on this engine's machine too."""
    ours = ("--filter", f"label=com.docker.stack.namespace={stack}")
    ended = docker("stack", "rm", stack)
    if not with_volumes:
        return [ended]
    containers = docker("ps", "--all", "--quiet", *ours)
    volumes = Output(docker("volume", "ls", "--quiet", *ours), is_list=True)
    return [ended, UntilEmpty(containers), docker("volume", "rm", volumes)]


def require_no_worker(*, is_active: bool, is_manager: bool) -> None:
    """DockerUnavailable if the engine is a worker of a swarm, where nothing can be made."""
    if is_active and not is_manager:
        raise DockerUnavailable(
            "this machine is a worker of a docker swarm already: run `neuroswarm deploy init` on "
            "one of its managers, or leave that swarm first (`docker swarm leave`)"
        )


def require_join_token(text: str) -> None:
    """ConfigError if this is no join token of docker's."""
    if not re.fullmatch(r"SWMTKN-[A-Za-z0-9.-]+", text):
        raise ConfigError(
            "no join token of a docker swarm: it begins with SWMTKN- (on a manager: `docker swarm "
            "join-token worker`; the swarm token of neuroswarm is another thing, and travels as a "
            "docker secret)"
        )


def with_port(address: str) -> str:
    """The address of a manager with its port: 2377 unless another is written."""
    if address.startswith("["):
        return address if "]:" in address else f"{address}:{SWARM_PORT}"
    if address.count(":") > 1:
        return f"[{address}]:{SWARM_PORT}"
    return address if ":" in address else f"{address}:{SWARM_PORT}"
