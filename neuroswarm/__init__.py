"""Train one model together on the computers you have, with no coordinator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuroswarm.config import SwarmNodeConfig
    from neuroswarm.identity.token import SwarmToken
    from neuroswarm.node.factory import create_swarm_node, create_swarm_node_with_p2p
    from neuroswarm.node.node import SwarmNode
    from neuroswarm.node.swarm_optimizer import SwarmOptimizer

__all__ = [
    "SwarmNode",
    "SwarmNodeConfig",
    "SwarmOptimizer",
    "SwarmToken",
    "create_swarm_node",
    "create_swarm_node_with_p2p",
]

_HOMES = {
    "SwarmNode": "neuroswarm.node.node",
    "SwarmNodeConfig": "neuroswarm.config",
    "SwarmOptimizer": "neuroswarm.node.swarm_optimizer",
    "SwarmToken": "neuroswarm.identity.token",
    "create_swarm_node": "neuroswarm.node.factory",
    "create_swarm_node_with_p2p": "neuroswarm.node.factory",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'neuroswarm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
