"""What a node keeps on its disk: key, checkpoints, what it signed, the event log.

Knows where they are; refuses to know when they are written.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.checkpoint.event_log import EventLog
from neuroswarm.checkpoint.held import HeldLog
from neuroswarm.checkpoint.left_behind import LeftBehind
from neuroswarm.checkpoint.said import SaidLog
from neuroswarm.checkpoint.shelf import Shelf
from neuroswarm.checkpoint.small_file import SmallFile
from neuroswarm.checkpoint.state_folder import (
    StateFolder,
    open_default_state_folder,
    open_state_folder,
)
from neuroswarm.checkpoint.store import MODEL_FOLDER, CheckpointStore, Recovered
from neuroswarm.clock import Clock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.swarm_node import DEFAULT_STATE_DIR
from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.hardware.storage import is_sd_card
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import counted

logger = logging.getLogger(__name__)

MAX_LEFT_BEHIND = 3
SD_CARD_DAILY_MB = 2048
MB = 1_000_000
MAX_TRAFFIC_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Home:
    """A node's open state folder; `close` lets others use it."""

    folder: StateFolder
    key: NodeKey
    store: CheckpointStore
    left_behind: LeftBehind
    """Outer states of lineages that this node gave up."""
    events: EventLog
    """JSON lines of what the rounds did."""
    daily_bytes: int | None
    """Bytes of checkpoints that may be written a day; None without a limit."""
    said: SaidLog
    held: HeldLog
    shelf: Shelf
    """What is rarely needed, instead of in memory."""
    traffic: SmallFile
    """Bytes moved today and this month."""

    @property
    def model_path(self) -> Path:
        """The folder of what is known of the model, among the checkpoints."""
        return self.store.folder / MODEL_FOLDER

    def forget_before(self, round_: int) -> None:
        """A checkpoint of this round is durable: what was said and held before is not needed."""
        self.said.forget_before(round_)
        self.held.forget_before(round_)

    @property
    def bytes_written(self) -> int:
        """Bytes written to the disk since the start: checkpoints, statements, events."""
        parts = (
            self.store, self.left_behind, self.events, self.said, self.held, self.shelf,
            self.traffic,
        )  # fmt: skip
        return sum(part.bytes_written for part in parts)

    def load_latest(self, architecture: bytes, base: bytes) -> Recovered | None:
        """The newest whole checkpoint of this model, or None if there is none.

        Args:
            architecture: The model's architecture hash, 32 bytes.
            base: Hash of its frozen parameters, empty without any.

        Raises:
            ConfigError: it is of another model, or of other frozen parameters.
            CheckpointError: the folder holds checkpoints of an earlier version only.
        """
        found = self.store.load_latest()
        if found is None:
            return None
        if found.outer.architecture != architecture:
            raise ConfigError(
                f"checkpoint of another model in {self.folder.path} (architecture "
                f"{found.outer.architecture.hex()[:8]}, not {architecture.hex()[:8]}): give "
                "the model's settings and the data's vocabulary as before, another --state-dir, or "
                "--fresh to start anew"
            )
        if (before := found.meta.get("base", "")) != base.hex():
            raise ConfigError(
                f"checkpoint on other frozen parameters in {self.folder.path} (base "
                f"{before[:8] or 'none'}, not {base.hex()[:8] or 'none'}): give the same weights "
                "as before, another --state-dir, or --fresh to start anew"
            )
        return found

    def require_nothing_lost(self) -> None:
        """Refuse to begin anew where there were checkpoints: somebody may mend or have them.

        Raises:
            CheckpointError: some were set aside as damaged.
        """
        num_damaged = self.store.num_damaged
        if num_damaged:
            raise CheckpointError(
                f"{self.store.folder}: {counted(num_damaged, 'checkpoint file')} cannot be read, "
                "and no peer was found that has the swarm's state: no other swarm is started in "
                "its place (start a node that has the state first, or give --fresh to begin anew)"
            )

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
        left_behind = LeftBehind(folder.path / "left-behind", MAX_LEFT_BEHIND)
        events = EventLog(folder.path / "events.jsonl", clock=clock)
        daily_bytes = _choose_daily_bytes(config.checkpoint.daily_write_mb, checkpoints)
        is_asked_for = config.resources.memory_to_disk
        shelf = Shelf(
            folder.path,
            store,
            may_write=is_asked_for == "on" or (is_asked_for == "auto" and daily_bytes is None),
            clock=clock,
        )
        home = Home(
            folder,
            key,
            store,
            left_behind,
            events,
            daily_bytes,
            SaidLog(folder.said_path),
            HeldLog(folder.held_path),
            shelf,
            SmallFile(folder.path / "traffic.json", MAX_TRAFFIC_BYTES),
        )
        undo.pop_all()
    return home


def _choose_daily_bytes(setting_mb: int | None, checkpoints: Path) -> int | None:
    if setting_mb is None and is_sd_card(checkpoints):
        logger.info(
            "checkpoints on an SD card: at most %d MB a day (checkpoint.daily_write_mb)",
            SD_CARD_DAILY_MB,
        )
        setting_mb = SD_CARD_DAILY_MB
    return None if setting_mb is None else setting_mb * MB


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
