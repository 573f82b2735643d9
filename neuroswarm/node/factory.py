"""Makes a node from the arguments that users give; starts nothing.

Knows how arguments and settings fit together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import ConfigError
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import Surroundings
from neuroswarm.node.node import SwarmNode
from neuroswarm.node.workload import Workload
from neuroswarm.training.loss import LossFunction
from neuroswarm.training.trainer import Batches
from neuroswarm.values import Endpoint


class PeerSource(Protocol):
    """Where a node may find peers besides trackers; embedders and tests bring one."""

    def heartbeat_endpoints(self) -> Iterable[tuple[str, int]]:
        """Host and heartbeat port of nodes to greet."""
        ...


def create_swarm_node(
    node_token: str | None,
    port: int,
    tracker_url: str | Iterable[str] | None,
    config: SwarmNodeConfig | None = None,
    available_memory_mb: int | None = None,
    enable_training: bool = False,
    max_storage_mb: int = 10000,
    max_cpu_threads: int = 4,
    p2p_manager: PeerSource | None = None,
    device: str = "auto",
    *,
    model: nn.Module | None = None,
    data: str | Path | Tensor | Batches | None = None,
    loss_fn: LossFunction | None = None,
) -> SwarmNode:
    """Make a peer of a swarm; it starts with `async with node:` or `node.start()`.

    Args:
        node_token: The swarm's token (`neuroswarm token new`). None or "" joins the open swarm,
            which anyone can enter. Tokens accepted besides are the configuration's
            (`network.accepted_token_files`).
        port: HTTP port, 0 for any free one. gRPC listens on `port + 1000` unless the
            configuration says otherwise.
        tracker_url: Address of any node or tracker, like "http://10.0.0.5:7101"; or several.
            None: those of the configuration; without any the node starts a swarm.
        config: All other settings; the arguments here take precedence.
        available_memory_mb: Memory to offer, MB; None takes what is free.
        enable_training: Whether `run`, `train` and `train_step` train.
        max_storage_mb: Disk space for data and checkpoints, MB.
        max_cpu_threads: Processor threads for training.
        p2p_manager: Another source of peers.
        device: Torch device; "auto" takes an accelerator when there is one.
        model: Module to train; must be built alike at every peer. None: the built-in byte
            transformer of the configuration.
        data: Text file or folder, token ids (1-D integers), or an object that makes batches.
            None: the configuration's. Without any a `model` is trained by a loop of yours, through
            `SwarmOptimizer`; the built-in one on this Python's standard library.
        loss_fn: (model, inputs [B, T], targets [B, T]) -> scalar loss in nats. None: the one that
            the model of the settings brings, or `next_token_loss`.

    Returns:
        A node that has touched neither disk nor network yet.

    Raises:
        ConfigError: a setting is not legal.
        AdmissionError: the token is malformed.
    """
    settings = _changed(
        config or SwarmNodeConfig(),
        network={"port": port, **_trackers(tracker_url)},
        run={"training": enable_training},
        resources={
            "available_memory_mb": available_memory_mb,
            "max_storage_mb": max_storage_mb,
            "max_cpu_threads": max_cpu_threads,
            "device": device,
        },
    )
    token = SwarmToken.parse(node_token) if node_token else SwarmToken.OPEN
    has_own_loop = model is not None and data is None and settings.data.path is None
    data = Path(data) if isinstance(data, str) else data
    workload = Workload(model, data, loss_fn, has_own_loop)
    return SwarmNode(settings, token, workload, Surroundings(hints=_hints(p2p_manager)))


create_swarm_node_with_p2p = create_swarm_node


def _trackers(given: str | Iterable[str] | None) -> dict[str, tuple[str, ...]]:
    """The setting, or none to leave the configuration's."""
    if given is None:
        return {}
    return {"trackers": (given,) if isinstance(given, str) else tuple(given)}


def _changed(base: SwarmNodeConfig, **sections: Mapping[str, Any]) -> SwarmNodeConfig:
    """The configuration with some settings changed, checked as a whole."""
    values = base.model_dump()
    for name, changes in sections.items():
        values[name] = {**values[name], **changes}
    return SwarmNodeConfig(**values)


def _hints(source: PeerSource | None) -> tuple[Endpoint, ...]:
    if source is None:
        return ()
    try:
        return tuple(Endpoint(host, port) for host, port in source.heartbeat_endpoints())
    except AttributeError as error:
        raise ConfigError(
            f"p2p_manager of type {type(source).__name__} has no heartbeat_endpoints() "
            "that gives (host, port) pairs"
        ) from error
