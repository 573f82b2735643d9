"""The folder in which one running node keeps what outlives it.

Locked while the node runs. Knows the places in it; refuses to know what is kept there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from neuroswarm.checkpoint.durable import replace_file, translating
from neuroswarm.checkpoint.manifest import FORMAT, require_known
from neuroswarm.clock import Clock
from neuroswarm.errors import CheckpointError
from neuroswarm.hardware.file_access import CLOSE_ON_EXEC
from neuroswarm.hardware.file_lock import try_lock
from neuroswarm.membership.own_record import MAX_INCARNATIONS

logger = logging.getLogger(__name__)

MAX_DEFAULT_NAMES = 64
FORMAT_FILE = "format"
"""Holds the format of all that is in the folder; the first versions wrote none."""

_PERIOD_S = 600.0


class StateFolder:
    """A node's folder, held by this process until `close` or the end of the process.

    Get one from `open_state_folder` or `open_default_state_folder`.
    """

    def __init__(self, path: Path, lock: int, incarnation: int) -> None:
        self.path = path
        self.incarnation = incarnation
        """How often a node has been started on this folder; grows with every start."""
        self._lock: int | None = lock

    @property
    def identity_path(self) -> Path:
        """The file of the node's key."""
        return self.path / "identity.key"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of the checkpoints, unless configured elsewhere."""
        return self.path / "checkpoints"

    @property
    def incoming_path(self) -> Path:
        """The folder of states that are being downloaded."""
        return self.path / "incoming"

    @property
    def shards_path(self) -> Path:
        """The folder of token shards that were fetched from peers, one in it for each corpus."""
        return self.path / "shards"

    @property
    def said_path(self) -> Path:
        """The folder of what was signed in rounds that no checkpoint covers."""
        return self.path / "said"

    @property
    def held_path(self) -> Path:
        """The folder of the contributions of others in such rounds."""
        return self.path / "held"

    def close(self) -> None:
        """Let others use the folder; safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_state_folder(path: Path, *, clock: Clock) -> StateFolder:
    """Create the folder if needed (readable by its owner alone), lock it, count the start.

    Args:
        path: The folder that was asked for.
        clock: Gives the count a new start, above all earlier ones, when its file is damaged.

    Raises:
        CheckpointError: another node uses it, or the disk refuses.
        NewerState: a later version has written in it.
    """
    folder = _try_open(path, clock)
    if folder is None:
        raise CheckpointError(
            f"state folder in use: {path} (another node runs on it; give another --state-dir)"
        )
    return folder


def open_default_state_folder(parent: Path, *, clock: Clock) -> StateFolder:
    """Open the first free of `node`, `node-2`, `node-3` ... in `parent`.

    So several nodes started alike on one machine get one each, and each its own again after a
    restart in the same order.

    Raises:
        CheckpointError: all 64 names are in use, or the disk refuses.
        NewerState: a later version has written in the first free one.
    """
    for path in _default_paths(parent):
        folder = _try_open(path, clock)
        if folder is not None:
            if path.name != "node":
                logger.info("state folder %s (the ones before it are in use)", path)
            return folder
    raise CheckpointError(f"state folders in use: all {MAX_DEFAULT_NAMES} in {parent}")


def _default_paths(parent: Path) -> Iterator[Path]:
    yield parent / "node"
    yield from (parent / f"node-{number}" for number in range(2, MAX_DEFAULT_NAMES + 1))


def _try_open(path: Path, clock: Clock) -> StateFolder | None:
    with translating("use state folder", path):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with translating("open", path / "lock"):
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC, 0o600)
        with ExitStack() as undo:
            undo.callback(os.close, lock)
            if not try_lock(lock):
                return None
            is_stamped = _check_format(path)
            try:
                if not is_stamped:
                    replace_file(path / FORMAT_FILE, f"{FORMAT}\n".encode())
                incarnation = _count_start(path / "incarnation", clock)
            except CheckpointError as error:
                raise CheckpointError(
                    f"{error} (a node that cannot note its starts and what it signs there might "
                    "contradict itself: make room, or give another --state-dir)"
                ) from error
            folder = StateFolder(path, lock, incarnation)
            undo.pop_all()
        return folder


def _check_format(folder: Path) -> bool:
    """Whether the folder says that it is of this version's format.

    Raises:
        NewerState: it is of a later one.
    """
    path = folder / FORMAT_FILE
    with translating("read", path):
        text = path.read_bytes()[:32] if path.exists() else b""
    number = text.split()[0] if text.split() else b""
    if not number.isdigit():
        if text:
            logger.warning("damaged %s: taken for format %d", path, FORMAT)
        return False
    require_known(int(number), f"state folder {folder}")
    return int(number) == FORMAT


def _count_start(path: Path, clock: Clock) -> int:
    """Add one to the number in the file, durably.

    A damaged file counts on from the number of `_PERIOD_S` since 1970: more often no node was
    ever started.
    """
    try:
        with translating("read", path):
            before = _parse_count(path.read_bytes()) if path.exists() else 0
    except ValueError:
        before = min(max(0, int(clock.wall() / _PERIOD_S)), MAX_INCARNATIONS - 2)
        logger.warning("damaged start counter %s: counting on from %d", path, before)
    incarnation = before + 1
    replace_file(path, f"{incarnation}\n".encode())
    return incarnation


def _parse_count(data: bytes) -> int:
    count = int(data)
    if not 0 <= count < MAX_INCARNATIONS - 1:
        raise ValueError(f"start counter out of range: {count}")
    return count
