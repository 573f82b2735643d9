"""Which docker commands put the stack's services there, show, update and follow them.

Refuses to run them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.deployment.command import Command, Output, Word, docker

NODE = "node"
TRACKER = "tracker"
"""Names of the services in the stack files."""


def plan_deploy(
    stack: str,
    files: Sequence[Path],
    variables: Mapping[str, Word],
    *,
    resolve_image: str,
    with_registry_auth: bool = False,
) -> list[Command]:
    """Put the stack of these files there, or change the one of that name into this."""
    named = [word for file in files for word in ("--compose-file", str(file))]
    words = ["stack", "deploy", *named, "--resolve-image", resolve_image]
    if with_registry_auth:
        words.append("--with-registry-auth")
    return [docker(*words, stack, variables=variables)]


def plan_nodes() -> Command:
    """Read every machine of the docker swarm, with its labels and address."""
    every = Output(docker("node", "ls", "--quiet"), is_list=True)
    return docker("node", "inspect", "--format", "{{json .}}", every)


def plan_services(stack: str) -> Command:
    """Read the names of the stack's services; it prints nothing if there is no such stack."""
    ours = f"label=com.docker.stack.namespace={stack}"
    return docker("service", "ls", "--format", "{{.Name}}", "--filter", ours)


def plan_tasks(stack: str) -> Command:
    """Read every task of the stack, which must exist."""
    return docker("stack", "ps", "--no-trunc", "--format", "{{json .}}", stack)


@dataclass(frozen=True, slots=True)
class Pace:
    """How an update goes over the machines; None leaves it as the stack file has it."""

    parallelism: int | None = None
    delay: str | None = None
    """As docker writes durations: 60s, 5m."""


def plan_update(
    services: Sequence[str], image: str, pace: Pace, *, resolve_image: bool, is_detached: bool
) -> list[Command]:
    """Give the services another image, each task stopped before its successor starts.

    Two nodes cannot hold one machine's ports, nor one state folder, at a time (FIELD_NOTES S17).
    """
    flags = ["--image", image, "--update-order", "stop-first"]
    if pace.parallelism is not None:
        flags += ["--update-parallelism", str(pace.parallelism)]
    if pace.delay is not None:
        flags += ["--update-delay", pace.delay]
    if not resolve_image:
        flags.append("--no-resolve-image")
    flags += _attachment(is_detached=is_detached)
    return [docker("service", "update", *flags, service) for service in services]


def plan_rollback(services: Sequence[str], *, is_detached: bool) -> list[Command]:
    """Give the services back what they were before their last update."""
    flags = ["--rollback", *_attachment(is_detached=is_detached)]
    return [docker("service", "update", *flags, service) for service in services]


@dataclass(frozen=True, slots=True)
class LogWishes:
    """Which lines of a service to show."""

    follow: bool = False
    since: str | None = None
    tail: str | None = None
    node: str | None = None
    """Of the task on this machine only."""
    with_times: bool = False


def plan_logs(service: str, wishes: LogWishes) -> list[Command]:
    """Show what the service's tasks wrote."""
    flags = []
    if wishes.follow:
        flags.append("--follow")
    if wishes.with_times:
        flags.append("--timestamps")
    if wishes.since is not None:
        flags += ["--since", wishes.since]
    if wishes.tail is not None:
        flags += ["--tail", wishes.tail]
    return [docker("service", "logs", *flags, _whose_logs(service, wishes.node))]


def _whose_logs(service: str, node: str | None) -> Word:
    """The service, or the task that it has on one machine."""
    if node is None:
        return service
    only = ("--filter", f"node={node}", "--filter", "desired-state=running")
    return Output(docker("service", "ps", "--quiet", "--no-trunc", *only, service))


def _attachment(*, is_detached: bool) -> list[str]:
    return ["--detach"] if is_detached else []
