"""The newest agreed outer state of a node's folder, and what is known of its model.

Only reads, so that it may be used while the node runs: what the node renames or deletes meanwhile
is looked for again. Knows nothing of the forms in which it is written elsewhere.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from neuroswarm.checkpoint.manifest import unseal
from neuroswarm.checkpoint.outer_files import OuterFile, OuterFiles
from neuroswarm.checkpoint.store import MANIFEST, MODEL_FOLDER, TENSORS
from neuroswarm.checkpoint.tensor_file import hash_file
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointCorrupt, CheckpointError, ConfigError
from neuroswarm.models.model_record import MAX_RECORD_BYTES, ModelRecord
from neuroswarm.node.about_model import RECORD

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
MAX_LOOKS = 8
"""How often a folder is listed again because a file was gone before it was read."""

_INNER = re.compile(r"inner-\d{8,}")
_BUFFER = "inner.buffer."


@dataclass(frozen=True, eq=False)
class Source:
    """An outer state, verified by its digest, and what its node knows of the model."""

    path: Path
    """Of the outer state's file, when it was read."""
    state: OuterState
    meta: Mapping[str, Any]
    """What was written with it."""
    record: ModelRecord

    @property
    def model_folder(self) -> Path:
        """Where the vocabulary and a Hugging Face configuration lie, if there are any."""
        return self.path.parent / MODEL_FOLDER

    @property
    def event_logs(self) -> list[Path]:
        """The node's event logs, oldest first; none if checkpoints lie elsewhere."""
        folder = self.path.parent.parent
        names = ("events.1.jsonl", "events.jsonl")
        return [folder / name for name in names if (folder / name).is_file()]


def open_source(path: Path) -> Source:
    """Read the newest outer state.

    Args:
        path: A node's state folder, its folder of checkpoints, or the file of one outer state.

    Raises:
        ConfigError: there is none, or nothing is known of its model.
        CheckpointError: it cannot be read, or is damaged.
    """
    path = path.expanduser()
    found = _read_one(path) if path.is_file() else _read_newest(_find_folder(path))
    file, state, meta = found
    record = _read_record(file.parent / MODEL_FOLDER / RECORD)
    if record.architecture != state.architecture.hex():
        raise CheckpointError(
            f"{file.parent / MODEL_FOLDER / RECORD} is of another model than {file.name}"
        )
    return Source(file, state, meta, record)


def is_state_folder(path: Path) -> bool:
    """Whether `open_source` would find outer states there."""
    try:
        return path.is_file() or bool(OuterFiles(_find_folder(path)).files())
    except (ConfigError, CheckpointError):
        return False


def read_buffers(source: Source) -> dict[str, Tensor]:
    """The persistent buffers of the newest whole checkpoint of the node's own work, by name.

    Buffers are not agreed on: these are the node's own. None if there is no such checkpoint.

    Cost: reads the checkpoint once, to verify it.
    """
    folder = source.path.parent
    names = sorted((path for path in folder.iterdir() if _INNER.fullmatch(path.name)), reverse=True)
    for path in names:
        try:
            return _read_inner_buffers(path)
        except (OSError, CheckpointCorrupt, SafetensorError, KeyError, TypeError) as error:
            logger.debug("no buffers of %s: %s", path, error)
    return {}


def _find_folder(path: Path) -> Path:
    if not path.is_dir():
        raise ConfigError(f"no folder and no file: {path}")
    inner = path / CHECKPOINTS
    folder = inner if inner.is_dir() else path
    if not OuterFiles(folder).files():
        raise ConfigError(
            f"no outer state in {path} (give a node's --state-dir, its folder of checkpoints, or "
            "one outer-*.safetensors; a node writes the first when it has a state)"
        )
    return folder


def _read_newest(folder: Path) -> tuple[Path, OuterState, Mapping[str, Any]]:
    files = OuterFiles(folder)
    for _ in range(MAX_LOOKS):
        complaint = ""
        for file in reversed(files.files()):
            try:
                return file.path, *files.load(file)
            except CheckpointCorrupt as error:
                if not file.path.exists():
                    break  # renamed or replaced meanwhile
                complaint = f"{file.path.name}: {error}"
                logger.warning("passed over a damaged outer state: %s", complaint)
        else:
            raise CheckpointError(f"no whole outer state in {folder} ({complaint})")
    raise CheckpointError(f"outer states in {folder} are replaced faster than they can be read")


def _read_one(path: Path) -> tuple[Path, OuterState, Mapping[str, Any]]:
    match = re.fullmatch(r"outer-(\d+)-([0-9a-f]{64})\.safetensors", path.name)
    if match is None:
        raise ConfigError(f"{path} is no outer state (outer-*.safetensors of a node's checkpoints)")
    file = OuterFile(int(match[1]), bytes.fromhex(match[2]), path)
    return path, *OuterFiles(path.parent).load(file)


def _read_record(path: Path) -> ModelRecord:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(
            f"nothing is known of the model: {path} is missing (a node writes it when it starts)"
        ) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return ModelRecord.decode(data)


def _read_inner_buffers(path: Path) -> dict[str, Tensor]:
    recorded = unseal((path / MANIFEST).read_bytes())["files"][TENSORS]["sha256"]
    if hash_file(path / TENSORS) != recorded:
        raise CheckpointCorrupt(f"{TENSORS} has not the bytes that were written")
    with safe_open(path / TENSORS, framework="pt") as file:
        names = [name for name in file.keys() if name.startswith(_BUFFER)]  # noqa: SIM118
        return {name.removeprefix(_BUFFER): file.get_tensor(name).clone() for name in names}
