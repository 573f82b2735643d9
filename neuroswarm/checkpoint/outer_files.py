"""Outer states on disk: each once, in a file of its own that is named by its digest.

A file is whole or not there. Knows nothing of the checkpoints that name them.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.checkpoint.durable import TEMPORARY, translating
from neuroswarm.checkpoint.manifest import seal, unseal
from neuroswarm.checkpoint.snapshot import outer_from_parts, outer_parts
from neuroswarm.checkpoint.tensor_file import read_tensors, write_tensors
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointCorrupt, CheckpointError
from neuroswarm.hardware.disk import sync

logger = logging.getLogger(__name__)

_NAME = re.compile(r"outer-(\d{8,})-([0-9a-f]{64})\.safetensors(\.damaged)?")


@dataclass(frozen=True, slots=True)
class OuterFile:
    """One outer state on disk."""

    number: int
    """Grows in the order of writing."""
    digest: bytes
    path: Path


class OuterFiles:
    """The outer states in one folder.

    Threads: any, one call at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.bytes_written = 0
        """Bytes of files written since the start."""
        self._folder = folder

    def files(self, *, is_damaged: bool = False) -> list[OuterFile]:
        """What is there, oldest first; whether they are whole shows in loading.

        Raises:
            CheckpointError: the folder cannot be listed.
        """
        with translating("list", self._folder):
            matches = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return sorted(
            (
                OuterFile(int(match[1]), bytes.fromhex(match[2]), path)
                for match, path in matches
                if match and bool(match[3]) == is_damaged
            ),
            key=lambda file: file.number,
        )

    def find(self, digest: bytes) -> OuterFile | None:
        """The file of a state; CheckpointError if the folder cannot be listed."""
        return next((file for file in self.files() if file.digest == digest), None)

    def save(self, state: OuterState, meta: Mapping[str, Any], number: int) -> Path:
        """Write a state durably; one that is there already only becomes the newest.

        Args:
            state: Not copied.
            meta: What belongs to it; JSON values.
            number: Above those of all earlier files.

        Returns:
            The file, which has this name only when all of it is on the disk.

        Raises:
            CheckpointError: the disk does not take it; the earlier files are untouched.

        Cost: writes 8 bytes a parameter and waits for the disk, or only renames.
        """
        path = self._folder / f"outer-{number:08d}-{state.digest.hex()}.safetensors"
        known = self.find(state.digest)
        with translating("write outer state", path):
            if known is not None:
                known.path.rename(path)
            else:
                self._write(path, state, meta)
            sync(self._folder)
        return path

    def load(self, file: OuterFile) -> tuple[OuterState, dict[str, Any]]:
        """A state, verified by its digest, and what was written with it.

        Raises:
            CheckpointCorrupt: it is not what was written.
        """
        try:
            tensors, note = read_tensors(file.path)
        except OSError as error:
            raise CheckpointCorrupt(f"{file.path.name}: {error.strerror}") from error
        body = unseal(note)
        state = outer_from_parts(tensors, body.get("outer", {}))
        if state.digest != file.digest:
            raise CheckpointCorrupt(f"holds the outer state {state.digest.hex()[:8]}")
        return state, dict(body.get("meta", {}))

    def set_aside(self, file: OuterFile, reason: str) -> None:
        """Rename a damaged file and write the reason beside it."""
        aside = file.path.with_name(file.path.name + ".damaged")
        logger.warning("damaged outer state kept aside as %s: %s", aside, reason)
        try:
            file.path.rename(aside)
            _reason_of(aside).write_text(reason + "\n")
        except OSError as error:
            logger.warning("cannot set %s aside: %s", file.path, error.strerror)

    def keep(self, digests: frozenset[bytes], *, max_damaged: int) -> None:
        """Delete all but these and the newest, and all but the newest of the damaged.

        Raises:
            OSError: the disk does not let go.
        """
        with contextlib.suppress(CheckpointError):  # a folder that is gone holds nothing
            for file in self.files()[:-1]:
                if file.digest not in digests:
                    file.path.unlink()
            for file in self.files(is_damaged=True)[:-max_damaged]:
                file.path.unlink()
                _reason_of(file.path).unlink(missing_ok=True)

    def _write(self, path: Path, state: OuterState, meta: Mapping[str, Any]) -> None:
        tensors, document = outer_parts(state)
        temporary = self._folder / f"{TEMPORARY}{path.name}"
        try:
            note = seal({"outer": document, "meta": dict(meta)})
            size, _ = write_tensors(temporary, tensors, note)
            sync(temporary)
            temporary.rename(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        self.bytes_written += size


def _reason_of(damaged: Path) -> Path:
    return damaged.with_name(damaged.name + ".txt")
