"""Outer states of lineages that this node gave up, so that nothing is lost if it was wrong.

Knows nothing of lineages.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from neuroswarm.checkpoint.durable import clear_temporaries, translating
from neuroswarm.checkpoint.outer_files import OuterFiles
from neuroswarm.diloco.state import OuterState


class LeftBehind:
    """The newest few in one folder, which is made when there is one to keep.

    Threads: any, one call at a time.
    """

    def __init__(self, folder: Path, max_states: int) -> None:
        """Touch nothing yet.

        Args:
            folder: Of this node alone.
            max_states: At least 1; older ones are deleted.
        """
        self._folder = folder
        self._max_states = max_states
        self._files = OuterFiles(folder)

    @property
    def bytes_written(self) -> int:
        """Bytes of states written since the start."""
        return self._files.bytes_written

    def save(self, state: OuterState) -> Path:
        """Write a state durably; returns where.

        Raises:
            CheckpointError: the disk does not take it.
        """
        with translating("use", self._folder):
            self._folder.mkdir(exist_ok=True)
            clear_temporaries(self._folder)
        number = 1 + max((file.number for file in self._files.files()), default=0)
        path = self._files.save(state, {}, number)
        for file in self._files.files()[: -self._max_states]:
            with contextlib.suppress(OSError):  # it goes another time
                file.path.unlink()
        return path
