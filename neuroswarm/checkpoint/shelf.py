"""Puts what is rarely needed into files, so that its memory is free.

The files have no names, so nothing of them outlives the process. Where the disk refuses, what
should have gone there stays in memory. Knows nothing of when something is rarely needed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor

from neuroswarm.checkpoint.complaint import Complaint
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.checkpoint.stored import (
    OpenFile,
    StoredBytes,
    StoredFragment,
    StoredTensors,
    view_bytes,
)
from neuroswarm.checkpoint.tensor_file import find_tensors
from neuroswarm.clock import Clock
from neuroswarm.diloco.state import Fragment, OuterState
from neuroswarm.errors import CheckpointError
from neuroswarm.hardware.file_access import BINARY

logger = logging.getLogger(__name__)

SPARE_FACTOR = 4
"""So many times the bytes stay free on the disk, as checkpoints go before..."""
SPARE_BYTES = 64 * 1024 * 1024
"""... and at least so many."""


class Shelf:
    """Files without names in one folder, and the outer states that are on the disk anyway.

    Threads: any, one call at a time; calls block for the disk.
    """

    def __init__(
        self, folder: Path, store: CheckpointStore, *, may_write: bool, clock: Clock
    ) -> None:
        """Write nothing yet.

        Args:
            folder: Where the files lie.
            store: Where outer states may be already.
            may_write: Whether anything may be written; else only what is there is made use of.
            clock: Spaces what is tried again.
        """
        self.bytes_written = 0
        """Since the start."""
        self._folder = folder
        self._store = store
        self._may_write = may_write
        self._clock = clock
        self._complaint = Complaint(logger, "it stays in memory; training goes on")

    def put_state(self, state: OuterState) -> None:
        """Free the memory of a state that is not stood on any more, if the disk has room for it."""
        fragments = self._find(state)
        if fragments is None:
            halves = [
                t for fragment in state.fragments for t in (fragment.params, fragment.momentum)
            ]
            file = self._write(halves)
            fragments = None if file is None else _cut_spilled(state, file)
        if fragments is not None:
            state.put_away(fragments)

    def put_tensors(self, tensors: Sequence[Tensor]) -> StoredTensors | None:
        """Float32 tensors of one dimension; None if they must stay in memory."""
        file = self._write(tensors)
        if file is None:
            return None
        hashes = [hashlib.sha256(view_bytes(values)).digest() for values in tensors]
        return StoredTensors(file, [values.numel() for values in tensors], hashes)

    def put_bytes(self, wholes: Sequence[bytes]) -> list[StoredBytes] | None:
        """Pieces of bytes in one file, which is there until the last of them is forgotten."""
        file = self._write(wholes)
        if file is None:
            return None
        stored, at = [], 0
        for whole in wholes:
            stored.append(StoredBytes(file, at, len(whole)))
            at += len(whole)
        return stored

    def _find(self, state: OuterState) -> tuple[Fragment, ...] | None:
        """The fragments of a state that has been written as a part of a checkpoint."""
        try:
            path = self._store.find_outer(state.digest)
            if path is None:
                return None
            file = os.open(path, os.O_RDONLY | BINARY)
        except (OSError, CheckpointError):
            return None
        opened = OpenFile(file)
        try:
            found = find_tensors(file)
            starts = [
                (found[f"params.{k}"][0], found[f"momentum.{k}"][0])
                for k in range(len(state.fragments))
            ]
        except (OSError, CheckpointError, KeyError):
            return None
        return tuple(
            _stored(fragment, opened, *at)
            for fragment, at in zip(state.fragments, starts, strict=True)
        )

    def _write(self, parts: Iterable[Tensor | bytes]) -> OpenFile | None:
        views = [memoryview(p) if isinstance(p, bytes) else view_bytes(p) for p in parts]
        size = sum(map(len, views))
        if not self._may_write or self._complaint.is_pausing(self._clock.monotonic()):
            return None
        try:
            file = self._write_file(views, size)
        except OSError as error:
            refused = CheckpointError(f"cannot put {size} bytes away: {error.strerror or error}")
            self._complaint.failed(refused, self._clock.monotonic())
            return None
        if file is not None:
            self.bytes_written += size
            self._complaint.worked("putting away what is rarely needed")
        return file

    def _write_file(self, views: Sequence[memoryview], size: int) -> OpenFile | None:
        free = shutil.disk_usage(self._folder).free
        if free < size + max(SPARE_BYTES, SPARE_FACTOR * size):
            return None
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            for view in views:
                left = view
                while left:
                    left = left[file.write(left) :]
            return OpenFile(os.dup(file.fileno()))


def _cut_spilled(state: OuterState, file: OpenFile) -> tuple[Fragment, ...]:
    fragments, at = [], 0
    for fragment in state.fragments:
        fragments.append(_stored(fragment, file, at, at + 4 * fragment.num_params))
        at += 8 * fragment.num_params
    return tuple(fragments)


def _stored(fragment: Fragment, file: OpenFile, params_at: int, momentum_at: int) -> StoredFragment:
    return StoredFragment(
        fragment.name,
        fragment.num_params,
        fragment.piece_hashes,
        fragment.leaf,
        file,
        params_at,
        momentum_at,
    )
