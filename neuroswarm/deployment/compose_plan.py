"""Which docker commands run several nodes on one machine by docker compose.

Refuses to run them.
"""

from __future__ import annotations

from pathlib import Path

from neuroswarm.deployment.command import Command, Word, docker

PROJECT = "neuroswarm-dev"
"""Not the name of the stack: volumes of one name would be one, and end together."""
SERVICE = "node"


def plan_up(file: Path, image: str, num_nodes: int, *, context: Path | None) -> list[Command]:
    """Start so many nodes, or change their number; build the image first if there is a context."""
    variables: dict[str, Word] = {"IMAGE": image}
    flags = ["--detach", "--scale", f"{SERVICE}={num_nodes}"]
    if context is not None:
        variables["CONTEXT"] = str(context.resolve())
        flags.append("--build")
    else:
        flags.append("--no-build")
    return [docker(*_project(file), "up", *flags, variables=variables)]


def plan_down(file: Path, *, with_volumes: bool) -> list[Command]:
    """End them."""
    flags = ["--volumes"] if with_volumes else []
    return [docker(*_project(file), "down", *flags)]


def _project(file: Path) -> tuple[str, ...]:
    return ("compose", "--project-name", PROJECT, "--file", str(file))
