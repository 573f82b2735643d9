"""Checkpoints on disk: written whole or not at all, hashed, found again, the damaged set aside.

A checkpoint is a folder with `tensors.safetensors` and `manifest.json`, which carries the hash
of the tensors and of itself. Knows nothing of when to save (`node`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from neuroswarm.checkpoint.durable import sync, translating
from neuroswarm.checkpoint.snapshot import Snapshot, from_parts, to_parts
from neuroswarm.errors import CheckpointCorrupt

logger = logging.getLogger(__name__)

FORMAT = 1
TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
REASON = "reason.txt"

_NAME = re.compile(r"checkpoint-(\d{8,})")
_DAMAGED = re.compile(r"checkpoint-(\d{8,})\.damaged")
_TEMPORARY = ".tmp-"


class CheckpointStore:
    """The checkpoints of one node in one folder; at most `max_checkpoints` of them.

    Damaged ones are renamed to `*.damaged`, with the reason in a file, and as many are kept.

    Args:
        folder: Created when missing; of this node alone.
        max_checkpoints: At least 1.
        config: The resolved configuration without secrets, JSON values; kept in each manifest.

    Raises:
        CheckpointError: the folder cannot be created or listed.

    Threads: any; `save` and `load_latest` block for the disk and wait for one another.
    """

    def __init__(
        self, folder: Path, max_checkpoints: int, *, config: Mapping[str, Any] | None = None
    ) -> None:
        if max_checkpoints < 1:
            raise ValueError(f"max_checkpoints out of range: {max_checkpoints} (at least 1)")
        self.bytes_written = 0
        """Bytes of the checkpoints saved since the start."""
        self._folder = folder
        self._max_checkpoints = max_checkpoints
        self._config = dict(config or {})
        self._lock = threading.Lock()
        with translating("use", folder):
            folder.mkdir(parents=True, exist_ok=True)
            for leftover in folder.glob(f"{_TEMPORARY}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            self._next = 1 + max([0, *self._numbers(_NAME), *self._numbers(_DAMAGED)])

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first; whether they are whole shows in loading."""
        with translating("list", self._folder):
            return [self._path(number) for number in self._numbers(_NAME)]

    def save(self, snapshot: Snapshot) -> Path:
        """Write a checkpoint durably, then delete the oldest beyond the limit.

        Returns:
            Its folder, which appears under this name only when all of it is on the disk.

        Raises:
            CheckpointError: the disk does not take it; earlier checkpoints are untouched.

        Cost: hashes and writes 8 bytes a parameter for the outer state, 12 for the inner
        one, and up to 24 for the ledger.
        """
        tensors, document = to_parts(snapshot)
        with self._lock:
            path = self._path(self._next)
            temporary = self._folder / f"{_TEMPORARY}{path.name}"
            try:
                with translating("write checkpoint", path):
                    self._write(temporary, tensors, document)
                    temporary.rename(path)
                    sync(self._folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            self._next += 1
            self._prune()
        return path

    def load_latest(self) -> Snapshot | None:
        """The newest whole checkpoint, or None; damaged ones on the way are set aside.

        Raises:
            CheckpointError: the folder cannot be listed.
        """
        with self._lock:
            for path in reversed(self.paths()):
                try:
                    return _load(path)
                except CheckpointCorrupt as error:
                    self._set_aside(path, str(error))
        return None

    def _write(
        self, folder: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        save_file(dict(tensors), folder / TENSORS)
        sync(folder / TENSORS)
        num_bytes = (folder / TENSORS).stat().st_size
        files = {TENSORS: {"bytes": num_bytes, "sha256": _hash_file(folder / TENSORS)}}
        body = {"format": FORMAT, "files": files, "config": self._config, **document}
        manifest = {"sha256": _hash_json(body), "body": body}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, allow_nan=False))
        sync(folder / MANIFEST)
        sync(folder)
        self.bytes_written += num_bytes

    def _prune(self) -> None:
        """Delete the oldest, each under another name first: half of one never looks damaged."""
        try:
            for pattern, ending in ((_NAME, ""), (_DAMAGED, ".damaged")):
                for number in self._numbers(pattern)[: -self._max_checkpoints]:
                    doomed = self._folder / f"{_TEMPORARY}deleted-{number}"
                    self._path(number, ending).rename(doomed)
                    shutil.rmtree(doomed)
        except OSError as error:
            logger.warning("cannot delete old checkpoints: %s: %s", error.filename, error.strerror)

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = path.with_name(path.name + ".damaged")
        logger.warning("damaged checkpoint kept aside as %s: %s", aside, reason)
        try:
            path.rename(aside)
            (aside / REASON).write_text(reason + "\n")
        except OSError as error:
            logger.warning("cannot set %s aside: %s", path, error.strerror)

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def _path(self, number: int, ending: str = "") -> Path:
        return self._folder / f"checkpoint-{number:08d}{ending}"


def _load(path: Path) -> Snapshot:
    """Read and verify one checkpoint; CheckpointCorrupt with the reason if it is not whole."""
    try:
        body = _read_manifest(path / MANIFEST)
        recorded = body["files"][TENSORS]
        found = (path / TENSORS).stat().st_size
        if found != recorded["bytes"]:
            raise CheckpointCorrupt(f"{TENSORS} has {found} bytes (written: {recorded['bytes']})")
        if _hash_file(path / TENSORS) != recorded["sha256"]:
            raise CheckpointCorrupt(f"{TENSORS} has not the bytes that were written")
        # Copies: the tensors of load_file are windows into the file.
        tensors = {name: tensor.clone() for name, tensor in load_file(path / TENSORS).items()}
    except OSError as error:
        raise CheckpointCorrupt(f"{error.filename}: {error.strerror}") from error
    except (SafetensorError, KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{type(error).__name__}: {error}") from error
    return from_parts(tensors, body)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_bytes())
        recorded, body = manifest["sha256"], manifest["body"]
        is_whole = isinstance(body, dict) and _hash_json(body) == recorded
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointCorrupt(f"{MANIFEST} cannot be read: {error}") from error
    if not is_whole:
        raise CheckpointCorrupt(f"{MANIFEST} is not what was written")
    if body.get("format") != FORMAT:
        raise CheckpointCorrupt(f"format {body.get('format')} (this version reads {FORMAT})")
    return dict(body)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_json(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
