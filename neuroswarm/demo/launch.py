"""Which commands make the peers of a demo.

Knows the command line of a node; starts nothing.
"""

from __future__ import annotations

import json
import random
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.demo.children import Command
from neuroswarm.errors import DemoFailed

HOST = "127.0.0.1"

SETTINGS: Mapping[str, Any] = {
    "diloco.inner_steps": 50,
    "training.dim": 96,
    "training.num_layers": 3,
    "training.num_heads": 4,
    "training.context": 64,
    "training.batch_size": 8,
    "training.optimizer": "adamw",
    "training.lr": 0.0015,
    "training.warmup_steps": 50,
    "training.eval_batches": 16,
    "resources.max_cpu_threads": 1,
    "resources.device": "cpu",
    "heartbeat.interval_s": 2.0,
    "checkpoint.max_checkpoints": 2,
}
"""A byte transformer of 0.38M parameters that four peers on two cores train in minutes."""

DECIDED = ("network.", "heartbeat.port", "checkpoint.dir", "state_dir", "run.")
"""How the settings begin that the demo gives each peer by itself."""

HOSTILE_FACTOR = -10.0
"""What a hostile peer multiplies its pseudo-gradients by."""

# Below the range from which Linux takes the ports of outgoing connections, so that a peer that
# is started again finds its own still free.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one peer listens on loopback."""

    http: int
    grpc: int
    heartbeat: int

    @property
    def url(self) -> str:
        """The peer's address for `--tracker`."""
        return f"http://{HOST}:{self.http}"


@dataclass(frozen=True, slots=True)
class Launch:
    """What all peers of a run have in common."""

    settings: Mapping[str, Any]
    """By path, like `training.dim`."""
    environment: Mapping[str, str]
    """Of the processes, without settings and tokens."""
    token: str = field(repr=False)

    @property
    def config(self) -> SwarmNodeConfig:
        """The settings of a peer, but for its ports, trackers and folder; ConfigError if bad."""
        return SwarmNodeConfig(**nested(self.settings))


def node_command(
    launch: Launch, folder: Path, ports: Ports, trackers: Sequence[str], tokens: int | None = None
) -> Command:
    """`neuroswarm node` on `folder` and `ports`; with `tokens` it ends after so many."""
    flags = ["--host", HOST, "--port", str(ports.http), "--grpc-port", str(ports.grpc)]
    flags += ["--heartbeat-port", str(ports.heartbeat), "--state-dir", str(folder / "state")]
    for tracker in trackers:
        flags += ["--tracker", tracker]
    if tokens is not None:
        flags += ["--tokens", str(tokens)]
    for path, value in launch.settings.items():
        flags += ["--set", f"{path}={value}"]
    return Command(
        [sys.executable, "-m", "neuroswarm", "node", *flags],
        {**launch.environment, "NEUROSWARM_TOKEN": launch.token},
        folder / "log",
    )


def hostile_command(launch: Launch, folder: Path, ports: Ports, trackers: Sequence[str]) -> Command:
    """A hostile peer; it gets the same settings, on standard input."""
    own = {
        "network.host": HOST,
        "network.port": ports.http,
        "network.grpc_port": ports.grpc,
        "network.trackers": list(trackers),
        "heartbeat.port": ports.heartbeat,
        "state_dir": str(folder / "state"),
    }
    settings = nested({**launch.settings, **own})
    task = {"token": launch.token, "settings": settings, "factor": HOSTILE_FACTOR}
    return Command(
        [sys.executable, "-m", "neuroswarm.demo.hostile"],
        launch.environment,
        folder / "log",
        json.dumps(task, default=str),
    )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by path as sections within a mapping."""
    sections: dict[str, Any] = {}
    for path, value in settings.items():
        section, _, key = path.rpartition(".")
        if section:
            sections.setdefault(section, {})[key] = value
        else:
            sections[key] = value
    return sections


def choose_ports(count: int) -> list[Ports]:
    """Free ports for so many peers; DemoFailed if there are not enough."""
    numbers = list(range(_FIRST_PORT, _LAST_PORT))
    random.SystemRandom().shuffle(numbers)
    free = (number for number in numbers if _is_free(number))
    try:
        return [Ports(next(free), next(free), next(free)) for _ in range(count)]
    except StopIteration:
        raise DemoFailed(f"no free ports from {_FIRST_PORT} to {_LAST_PORT - 1}") from None


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                return False
    return True
