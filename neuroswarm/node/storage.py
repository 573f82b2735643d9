"""The disk space that a node's files take, and what of it is left for fetched shards.

Knows no shards and not what the files are for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from neuroswarm.data.assignment import Room


class Storage:
    """Counts; the limit is `resources.max_storage_mb`.

    Args:
        limit_bytes: For data and checkpoints together.
        folders: What is counted: the state folder, and that of the checkpoints if it is elsewhere.
        shards: Folder for fetched shards, which are counted by whoever asks.
        given_bytes: Shards of the user's, which are counted too.
        reserve_bytes: What the other files will take once they are all there.

    Threads: `measure` blocks for the disk; what it found may be read from any thread.
    """

    def __init__(
        self,
        limit_bytes: int,
        folders: Iterable[Path],
        *,
        shards: Path,
        given_bytes: int,
        reserve_bytes: int,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.shards = shards
        self.given_bytes = given_bytes
        self.reserve_bytes = reserve_bytes
        self.other_bytes = 0
        """Of files that are no shards, as of the last `measure`."""
        self._folders = tuple(dict.fromkeys(folders))
        self._free_bytes: int | None = None

    def measure(self) -> None:
        """Look at the disk. Files that come and go meanwhile may be counted or not."""
        self.other_bytes = sum(_count(folder, self.shards) for folder in self._folders)
        try:
            self._free_bytes = shutil.disk_usage(self._folders[0]).free
        except OSError:
            self._free_bytes = None

    def room(self, fetched_bytes: int) -> Room:
        """What fetched shards may take in all.

        Args:
            fetched_bytes: What they take now, unfinished ones included.
        """
        left = self.limit_bytes - self.given_bytes - self.other_bytes
        to_come = max(0, self.reserve_bytes - self.other_bytes)
        if self._free_bytes is not None:
            left = min(left, fetched_bytes + self._free_bytes)
        return Room(left - to_come, left)


def _count(folder: Path, without: Path) -> int:
    total = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) != without]
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue  # gone meanwhile
    return total
