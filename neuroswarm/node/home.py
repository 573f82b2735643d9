"""What a node keeps on its disk: key, checkpoints, what it signed, the event log.

Knows where they are; refuses to know when they are written.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from neuroswarm.checkpoint.said import SaidLog
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.state_folder import (
    StateFolder,
    open_default_state_folder,
    open_state_folder,
)
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.swarm_node import DEFAULT_STATE_DIR
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.identity.node_key import NodeKey

logger = logging.getLogger(__name__)

MAX_LEFT_BEHIND = 3


@dataclass(frozen=True, slots=True)
class Home:
    """A node's open state folder; `close` lets others use it."""

    folder: StateFolder
    key: NodeKey
    store: CheckpointStore
    left_behind: CheckpointStore
    """Outer states of lineages that this node gave up."""
    said: SaidLog

    @property
    def event_log(self) -> Path:
        """JSON lines of what the rounds did."""
        return self.folder.path / "events.jsonl"

    def load_latest(self, architecture: bytes) -> Snapshot | None:
        """The newest whole checkpoint of this model, or None if there is none.

        Raises:
            ConfigError: it is of another model.
        """
        snapshot = self.store.load_latest()
        if snapshot is not None and snapshot.outer.architecture != architecture:
            raise ConfigError(
                f"checkpoint of another model in {self.folder.path} (architecture "
                f"{snapshot.outer.architecture.hex()[:8]}, not {architecture.hex()[:8]}): give "
                "the model's settings as before, another --state-dir, or --fresh to start anew"
            )
        return snapshot

    def keep_left_behind(self, state: OuterState) -> Path:
        """Write an outer state that this node gives up for another lineage; returns where.

        Raises:
            CheckpointError: the disk does not take it.
        """
        nothing: tuple[dict[str, Tensor], dict[str, Any]] = ({}, {})
        return self.left_behind.save(Snapshot(state, state.params, nothing, nothing))

    def close(self) -> None:
        """Unlock the folder."""
        self.folder.close()


def open_home(config: SwarmNodeConfig, *, clock: Clock) -> Home:
    """Open, and where needed create, a node's state folder. Blocks for the disk.

    Raises:
        CheckpointError: the folder is in use or the disk refuses.
        ConfigError: the key in it is damaged.
    """
    if config.state_dir is not None:
        folder = open_state_folder(config.state_dir.expanduser(), clock=clock)
    else:
        parent = (DEFAULT_STATE_DIR / config.network.name).expanduser()
        folder = open_default_state_folder(parent, clock=clock)
    with ExitStack() as undo:
        undo.callback(folder.close)
        key = NodeKey.load_or_create(folder.identity_path)
        checkpoints = (config.checkpoint.dir or folder.checkpoints_path).expanduser()
        if config.run.fresh:
            _set_aside(checkpoints)
        store = CheckpointStore(
            checkpoints, config.checkpoint.max_checkpoints, config=_plain(config)
        )
        left_behind = CheckpointStore(folder.path / "left-behind", MAX_LEFT_BEHIND)
        home = Home(folder, key, store, left_behind, SaidLog(folder.said_path))
        undo.pop_all()
    return home


def _set_aside(checkpoints: Path) -> None:
    if not checkpoints.exists():
        return
    number = 1
    while (aside := checkpoints.with_name(f"{checkpoints.name}.before-{number}")).exists():
        number += 1
    try:
        checkpoints.rename(aside)
    except OSError as error:
        raise CheckpointError(f"cannot set {checkpoints} aside: {error.strerror}") from error
    logger.info("earlier checkpoints kept aside in %s", aside)


def _plain(config: SwarmNodeConfig) -> dict[str, Any]:
    return config.model_dump(mode="json")
