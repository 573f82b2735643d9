"""The held-out loss of what a finished node left on its disk, measured more finely than it did.

Knows checkpoints; refuses to know processes.
"""

from __future__ import annotations

from pathlib import Path

from neuroswarm.checkpoint.store import CheckpointStore, Recovered
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import DemoFailed
from neuroswarm.node.workload import Workload

FINAL_BATCHES = 128


class Examiner:
    """Measures parameters on the same held-out text.

    Args:
        config: Settings of the nodes: the model and the data.
        num_batches: Batches of held-out text behind each loss.
    """

    def __init__(self, config: SwarmNodeConfig, *, num_batches: int = FINAL_BATCHES) -> None:
        self._trainer = Workload().make_trainer(config, SystemClock())
        self._num_batches = num_batches

    def loss_of_swarm(self, state_folder: Path) -> float:
        """Loss of the last outer state that a peer held, nats per byte."""
        return self._trainer.evaluate(load_last(state_folder).outer.params, self._num_batches)

    def loss_of_peer(self, state_folder: Path) -> float:
        """Loss of a peer's own parameters after its last inner step, nats per byte."""
        snapshot = load_last(state_folder).snapshot
        if snapshot is None:
            raise DemoFailed(f"no whole checkpoint in {state_folder / 'checkpoints'}")
        return self._trainer.evaluate(snapshot.local, self._num_batches)


def load_last(state_folder: Path) -> Recovered:
    """The newest that a node which has ended left on disk; DemoFailed if there is nothing."""
    folder = state_folder / "checkpoints"
    found = CheckpointStore(folder, 1).load_latest() if folder.is_dir() else None
    if found is None:
        raise DemoFailed(f"no checkpoint in {folder}")
    return found
