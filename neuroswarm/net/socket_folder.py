"""A folder for one process's local sockets, that goes with the process.

A process that is killed leaves its folder; the next one that makes a folder removes it. Whether
the owner lives is told by a lock that the kernel drops with it. Knows nothing of the sockets.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

from neuroswarm.hardware.disk import is_own
from neuroswarm.hardware.file_access import CLOSE_ON_EXEC, NO_LINKS
from neuroswarm.hardware.file_lock import try_lock

logger = logging.getLogger(__name__)

PREFIX = "neuroswarm-sockets-"
_LOCK = "lock"


class SocketFolder:
    """A folder that only this user may enter, its path short enough for the names of sockets."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def make(cls) -> Self:
        """Make one among the temporary files, and remove those whose owners are dead.

        Raises:
            OSError: nothing can be made there.
        """
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            _remove_orphans(path.parent)
            return cls(path, _lock(path))
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def _lock(folder: Path) -> int:
    """Lock a folder, before anybody can see that it is not locked."""
    unseen = folder / f"{_LOCK}.new"
    descriptor = os.open(unseen, os.O_CREAT | os.O_RDWR | CLOSE_ON_EXEC, 0o600)
    try:
        try_lock(descriptor)
        unseen.rename(folder / _LOCK)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_orphans(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if _is_orphan(folder):
                shutil.rmtree(folder)
        except OSError as error:  # of another user, or being removed by another node
            logger.debug("%s is left where it is: %s", folder, error)


def _is_orphan(folder: Path) -> bool:
    if folder.is_symlink() or not is_own(folder):
        return False
    lock = folder / _LOCK
    if not lock.exists():
        return False  # being made
    descriptor = os.open(lock, os.O_RDWR | NO_LINKS | CLOSE_ON_EXEC)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)
