"""Checkpoints on disk: written whole or not at all, hashed, found again, the damaged set aside.

Outer states lie in files of their own (`outer_files`). An inner checkpoint is a folder with
`tensors.safetensors` and `manifest.json`, which carries the hash of the tensors and of itself and
names the outer state that it goes with. Knows nothing of when to save (`checkpointer`).
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from neuroswarm.checkpoint.durable import TEMPORARY, clear_temporaries, translating
from neuroswarm.checkpoint.manifest import seal, unseal
from neuroswarm.checkpoint.outer_files import OuterFiles
from neuroswarm.checkpoint.snapshot import Snapshot, inner_from_parts, inner_parts
from neuroswarm.checkpoint.tensor_file import hash_file, read_tensors, write_tensors
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointCorrupt, CheckpointError
from neuroswarm.hardware.disk import sync

logger = logging.getLogger(__name__)

TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
REASON = "reason.txt"
MODEL_FOLDER = "model"
"""Among the checkpoints: what the node knows of its model (`node/about_model.py`)."""

_NAME = re.compile(r"inner-(\d{8,})")
_DAMAGED = re.compile(r"inner-(\d{8,})\.damaged")
_FORMAT_1 = re.compile(r"checkpoint-(\d{8,})")


@dataclass(frozen=True, eq=False)
class Recovered:
    """What a restart finds on the disk."""

    outer: OuterState
    """The newest whole outer state: where to stand."""
    snapshot: Snapshot | None
    """The newest whole checkpoint; its outer state may be an earlier one than `outer`. None: the
    outer state is all there is."""
    meta: Mapping[str, Any]
    """What was written with the outer state, and over it what was written with the snapshot."""


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A whole outer state and what was written with it."""

    number: int
    state: OuterState
    meta: Mapping[str, Any]


class CheckpointStore:
    """The checkpoints of one node in one folder.

    At most `max_checkpoints` inner ones are kept, the outer states that they name, and the newest
    outer state. Damaged ones are renamed to `*.damaged`, with the reason in a file, and as many
    are kept.

    Args:
        folder: Created when missing; of this node alone.
        max_checkpoints: At least 1.
        config: The resolved configuration without secrets, JSON values; kept in each manifest.

    Raises:
        CheckpointError: the folder cannot be created or listed.

    Threads: any; methods block for the disk and wait for one another.
    """

    def __init__(
        self, folder: Path, max_checkpoints: int, *, config: Mapping[str, Any] | None = None
    ) -> None:
        if max_checkpoints < 1:
            raise ValueError(f"max_checkpoints out of range: {max_checkpoints} (at least 1)")
        self._inner_bytes_written = 0
        self._folder = folder
        self._max_checkpoints = max_checkpoints
        self._config = dict(config or {})
        self._lock = threading.Lock()
        self._outers = OuterFiles(folder)
        with translating("use", folder):
            folder.mkdir(parents=True, exist_ok=True)
            clear_temporaries(folder)
            numbers = self._numbers(_NAME)
            taken = [*numbers, *self._numbers(_DAMAGED)]
            self._device = folder.stat().st_dev
        files = (*self._outers.files(), *self._outers.files(is_damaged=True))
        taken += [file.number for file in files]
        self._next = 1 + max([0, *taken])
        self._named = {number: self._read_name(number) for number in numbers}
        """Digest of the outer state that each inner checkpoint names; None if it is damaged."""

    @property
    def folder(self) -> Path:
        """Where the checkpoints are."""
        return self._folder

    @property
    def bytes_written(self) -> int:
        """Bytes of the checkpoints and outer states written since the start."""
        return self._inner_bytes_written + self._outers.bytes_written

    def paths(self) -> list[Path]:
        """The inner checkpoints, oldest first; whether they are whole shows in loading."""
        with translating("list", self._folder):
            return [self._path(number) for number in self._numbers(_NAME)]

    def outer_digests(self) -> list[bytes]:
        """Digests of the outer states on disk, oldest first."""
        return [file.digest for file in self._outers.files()]

    def find_outer(self, digest: bytes) -> Path | None:
        """The file of an outer state; CheckpointError if the folder cannot be listed."""
        file = self._outers.find(digest)
        return None if file is None else file.path

    def save_outer(self, state: OuterState, meta: Mapping[str, Any]) -> Path:
        """Write an outer state durably, once; it is the newest from now on.

        Args:
            state: Not copied; its digest should be known already.
            meta: What a restart needs besides; JSON values.

        Raises:
            CheckpointError: the disk does not take it; what is there is untouched.
        """
        with self._lock:
            self._require_folder()
            path = self._outers.save(state, meta, self._take_number())
            self._prune()
        return path

    def save(self, snapshot: Snapshot) -> Path:
        """Write an inner checkpoint durably, and before it the outer state if it is not there.

        Snapshots must come in the order of their making, also between outer states.

        Returns:
            Its folder, which appears under this name only when all of it is on the disk.

        Raises:
            CheckpointError: the disk does not take it; earlier checkpoints are untouched.

        Cost: hashes and writes 12 bytes a parameter and up to 24 for the ledger.
        """
        with self._lock:
            self._require_folder()
            digest = snapshot.outer.digest
            if self._outers.find(digest) is None:
                self._outers.save(snapshot.outer, snapshot.meta, self._take_number())
            number = self._take_number()
            path = self._path(number)
            temporary = self._folder / f"{TEMPORARY}{path.name}"
            try:
                with translating("write checkpoint", path):
                    self._write(temporary, snapshot)
                    temporary.rename(path)
                    sync(self._folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            self._named[number] = digest
            self._prune()
        return path

    @property
    def num_damaged(self) -> int:
        """Checkpoints and outer states that were set aside; CheckpointError if nobody can look."""
        with translating("list", self._folder):
            numbers = self._numbers(_DAMAGED)
        return len(numbers) + len(self._outers.files(is_damaged=True))

    def load_latest(self) -> Recovered | None:
        """The newest that is whole, or None; damaged ones on the way are set aside.

        Raises:
            CheckpointError: the folder cannot be listed, or holds checkpoints of format 1 only.
        """
        with self._lock:
            newest = self._load_newest_outer()
            pair = self._load_newest_pair(newest)
        if pair is None:
            if newest is None:
                self._refuse_format_1()
                return None
            return Recovered(newest.state, None, newest.meta)
        number, snapshot, named = pair
        is_newer = newest is not None and newest.number > number
        stand = named
        if newest is not None and is_newer:
            again = comes_again(newest.meta, newest.state.round, named.state.round)
            stand = named if again else newest
        return Recovered(stand.state, snapshot, {**stand.meta, **snapshot.meta})

    # -- loading ---------------------------------------------------------------------

    def _load_newest_outer(self) -> _Loaded | None:
        for file in reversed(self._outers.files()):
            try:
                return _Loaded(file.number, *self._outers.load(file))
            except CheckpointCorrupt as error:
                self._outers.set_aside(file, str(error))
        return None

    def _load_newest_pair(self, newest: _Loaded | None) -> tuple[int, Snapshot, _Loaded] | None:
        """Number of the newest whole inner checkpoint, itself, and its outer state."""
        for path in reversed(self.paths()):
            try:
                tensors, body = _read_inner(path)
                named = self._load_named(body, newest)
                number = int(path.name.rpartition("-")[2])
                return number, inner_from_parts(named.state, tensors, body), named
            except CheckpointCorrupt as error:
                self._set_aside(path, str(error))
        return None

    def _load_named(self, body: Mapping[str, Any], newest: _Loaded | None) -> _Loaded:
        try:
            digest = bytes.fromhex(body["outer"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointCorrupt(f"outer state not named: {error}") from error
        if newest is not None and newest.state.digest == digest:
            return newest
        file = self._outers.find(digest)
        if file is None:
            raise CheckpointCorrupt(f"its outer state {digest.hex()[:8]} is not there")
        try:
            return _Loaded(file.number, *self._outers.load(file))
        except CheckpointCorrupt as error:
            self._outers.set_aside(file, str(error))
            raise CheckpointCorrupt(f"its outer state is damaged: {error}") from error

    def _refuse_format_1(self) -> None:
        """Checkpoints that this version cannot read are no reason to start anew in silence."""
        if self._numbers(_FORMAT_1):
            raise CheckpointError(
                f"checkpoints of an earlier version in {self._folder}: this one cannot read them "
                "(give --fresh to start anew and keep them aside, or another --state-dir)"
            )

    def _read_name(self, number: int) -> bytes | None:
        try:
            return bytes.fromhex(unseal((self._path(number) / MANIFEST).read_bytes())["outer"])
        except (OSError, CheckpointCorrupt, KeyError, TypeError, ValueError):
            return None  # what is wrong is said when it is loaded

    # -- writing ---------------------------------------------------------------------

    def _write(self, folder: Path, snapshot: Snapshot) -> None:
        tensors, document = inner_parts(snapshot)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        num_bytes, sha256 = write_tensors(folder / TENSORS, tensors)
        sync(folder / TENSORS)
        files = {TENSORS: {"bytes": num_bytes, "sha256": sha256}}
        manifest = seal({"files": files, "config": self._config, **document})
        (folder / MANIFEST).write_text(manifest)
        sync(folder / MANIFEST)
        sync(folder)
        self._inner_bytes_written += num_bytes + len(manifest)

    def _require_folder(self) -> None:
        """Make the folder again if somebody deleted it, but only on the disk that it was on."""
        with translating("write checkpoints to", self._folder):
            if self._folder.parent.is_dir() and not self._folder.exists():
                is_same = self._folder.parent.stat().st_dev == self._device
                if is_same:
                    self._folder.mkdir()
            if self._folder.stat().st_dev != self._device:
                raise CheckpointError(
                    f"cannot write checkpoints to {self._folder}: its disk is not mounted"
                )

    def _take_number(self) -> int:
        """A number above all earlier ones; one whose file was not written is never used again."""
        self._next += 1
        return self._next - 1

    def _prune(self) -> None:
        """Delete the oldest, each under another name first: half of one never looks damaged."""
        try:
            for pattern, ending in ((_NAME, ""), (_DAMAGED, ".damaged")):
                for number in self._numbers(pattern)[: -self._max_checkpoints]:
                    doomed = self._folder / f"{TEMPORARY}deleted-{number}"
                    self._path(number, ending).rename(doomed)
                    shutil.rmtree(doomed)
                    self._named.pop(number, None)
            named = frozenset(digest for digest in self._named.values() if digest is not None)
            self._outers.keep(named, max_damaged=self._max_checkpoints)
        except OSError as error:
            logger.warning("cannot delete old checkpoints: %s: %s", error.filename, error.strerror)

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = path.with_name(path.name + ".damaged")
        logger.warning("damaged checkpoint kept aside as %s: %s", aside, reason)
        match = _NAME.fullmatch(path.name)
        if match:
            self._named.pop(int(match[1]), None)
        try:
            path.rename(aside)
            (aside / REASON).write_text(reason + "\n")
        except OSError as error:
            logger.warning("cannot set %s aside: %s", path, error.strerror)

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def _path(self, number: int, ending: str = "") -> Path:
        return self._folder / f"inner-{number:08d}{ending}"


MAX_REPEATED_ROUNDS = 3
"""Rounds that a lone node takes again after a restart to come to the same bits."""


def comes_again(meta: Mapping[str, Any], outer_round: int, inner_round: int) -> bool:
    """Whether a restart leads to an outer state again, bit for bit, from the inner checkpoint.

    That is so for a node that is alone. If it is few rounds further, it starts from the inner
    checkpoint: with the outer state and an older inner one it would be on another path.

    Args:
        meta: What was written with the outer state; `is_alone` says that nobody else had a part.
        outer_round: Round of the outer state.
        inner_round: Round of the newest whole inner checkpoint.
    """
    return meta.get("is_alone") is True and (
        inner_round < outer_round <= inner_round + MAX_REPEATED_ROUNDS
    )


def _read_inner(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read and verify one inner checkpoint; CheckpointCorrupt if it is not whole."""
    try:
        body = unseal((path / MANIFEST).read_bytes())
        recorded = body["files"][TENSORS]
        found = (path / TENSORS).stat().st_size
        if found != recorded["bytes"]:
            raise CheckpointCorrupt(f"{TENSORS} has {found} bytes (written: {recorded['bytes']})")
        if hash_file(path / TENSORS) != recorded["sha256"]:
            raise CheckpointCorrupt(f"{TENSORS} has not the bytes that were written")
        tensors, _ = read_tensors(path / TENSORS)
    except OSError as error:
        raise CheckpointCorrupt(f"{error.filename}: {error.strerror}") from error
    except (KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{type(error).__name__}: {error}") from error
    return tensors, body
