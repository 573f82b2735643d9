"""A node's folder with an outer state in it, written without starting a node.

Knows nothing of rounds: the parameters are those that a founder would begin with.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from neuroswarm.checkpoint.outer_files import OuterFiles
from neuroswarm.checkpoint.store import MODEL_FOLDER
from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.diloco.state import OuterState
from neuroswarm.node.workload import Prepared, Workload, make_genesis


def write_state(
    folder: Path,
    workload: Workload,
    config: SwarmNodeConfig | None = None,
    *,
    number: int = 1,
    round_: int = 0,
) -> tuple[OuterState, Prepared]:
    """Make a model and write its outer state as a node does.

    Args:
        folder: The node's state folder.
        workload: What it trains.
        config: Its settings.
        number: Of the file.
        round_: That the state is said to be of.

    Returns:
        The state, and the model it is of.
    """
    config = config or SwarmNodeConfig()
    prepared = workload.prepare(config, SystemClock())
    first = make_genesis(config, prepared.trainer, prepared.trainer.local())
    state = replace(first, round=round_)
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    OuterFiles(checkpoints).save(state, {"base": prepared.trainer.fragments.base.hex()}, number)
    prepared.about.keep(checkpoints / MODEL_FOLDER)
    return state, prepared
