"""Why a node takes no part in rounds although it was not told to stay out of them.

Only reads; decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuroswarm.node.core import NodeCore


def why_not_training(node: NodeCore) -> str | None:
    """The first reason that there is, for people; None while it trains, or is not meant to."""
    parts = node.parts
    if parts is None or not node.config.run.training:
        return None
    if parts.trainer.why_idle:
        return parts.trainer.why_idle
    if not parts.replica.has_state:
        return "no state of the swarm is here yet"
    if parts.home.key.node_id in parts.replica.state.rules.expelled_ids:
        return "the owner of the swarm has expelled this node"
    if parts.fitting.reason:
        return parts.fitting.reason
    if parts.meter.is_silent:
        return "the data cap is used up"
    if not parts.trainer.has_data():
        return "no token shard to train on is here yet"
    if parts.compute.is_stalled:
        return "the training loop outside of the node takes no steps"
    if parts.rounds.driver.is_deferring:
        return "most peers are elsewhere: publishes nothing until it is with them"
    return None
