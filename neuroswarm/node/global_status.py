"""How the training of the whole swarm goes, as one node sees it (REQUIREMENTS N13).

Only reads; asks nobody: all of it is in the peers' heartbeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from neuroswarm.rounds.loss_trend import Trend
from neuroswarm.rounds.positions import Standing

if TYPE_CHECKING:
    from neuroswarm.node.parts import Parts


def describe_training(parts: Parts) -> Mapping[str, object]:
    """Whether the model gets better, and whether all have the same weights, as JSON values."""
    has_state = parts.replica.has_state
    state = parts.replica.state if has_state else None
    trend = parts.recorder.trend
    loss = parts.rounds.crowd.held_out.newest()
    return {
        "round": None if state is None else state.round,
        "digest": None if state is None else state.digest.hex(),
        "loss": None if loss is None else loss.loss,
        "loss_round": None if loss is None else loss.round,
        "loss_nodes": 0 if loss is None else loss.num_nodes,
        "best_loss": trend.best,
        "trend": None if trend.trend is None else trend.trend.value,
        "is_improving": None if trend.trend is None else trend.trend is Trend.FALLING,
        **_count_weights(parts),
    }


def _count_weights(parts: Parts) -> Mapping[str, object]:
    crowd, history = parts.rounds.crowd, parts.rounds.intake.history
    live = crowd.live()
    if history is None:
        return {"nodes": 1 + len(live), "nodes_unknown": 1 + len(live), "has_converged": None}
    found = Counter(crowd.positions.standing(peer.node_id, history) for peer in live)
    return {
        "nodes": 1 + len(live),
        "nodes_same": 1 + found[Standing.LEVEL],
        "nodes_behind": found[Standing.BEHIND],
        "nodes_ahead": found[Standing.AHEAD],
        "nodes_apart": found[Standing.APART],
        "nodes_unknown": found[Standing.UNKNOWN],
        "has_converged": not found[Standing.APART],
    }
