"""Which docker commands run several nodes on one machine by docker compose.

Refuses to run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroswarm.deployment.command import Command, Word, docker
from neuroswarm.errors import ConfigError

PROJECT = "neuroswarm-dev"
"""Not the name of the stack: volumes of one name would be one, and end together."""
SERVICE = "node"
DOCKERFILE = "neuroswarm/deployment/files/Dockerfile"
"""In the sources, where compose.yml looks for it."""


def plan_up(
    file: Path, variables: Mapping[str, Word], num_nodes: int, *, builds: bool
) -> list[Command]:
    """Start so many nodes, or change their number; build the image first if told to."""
    flags = ["--detach", "--scale", f"{SERVICE}={num_nodes}", "--build" if builds else "--no-build"]
    return [docker(*_project(file), "up", *flags, variables=variables)]


def require_sources(context: Path) -> None:
    """ConfigError if this is no folder that the image can be built from by our compose file."""
    if not (context / DOCKERFILE).is_file():
        raise ConfigError(
            f"nothing to build from in {context}: there is no {DOCKERFILE} (name the folder of "
            "neuroswarm's sources)"
        )


def plan_down(file: Path, *, with_volumes: bool) -> list[Command]:
    """End them."""
    flags = ["--volumes"] if with_volumes else []
    return [docker(*_project(file), "down", *flags)]


def _project(file: Path) -> tuple[str, ...]:
    return ("compose", "--project-name", PROJECT, "--file", str(file))
