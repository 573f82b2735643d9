"""The text to train on, read from files into one tensor of tokens.

Knows nothing of windows, batches or nodes (`neuroswarm.data.sampler`).
"""

from __future__ import annotations

import logging
import os
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from neuroswarm.data.sampler import WindowSampler
from neuroswarm.errors import DataError
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 64 * 1024 * 1024

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
"""Parts of the standard library's folder that are not its source."""

_PROBE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text as tokens, and where it came from.

    Args:
        tokens: Integers, 1-D, CPU; bytes of text files as uint8. Never written to.
        source: For logs and status, such as a path.
    """

    tokens: Tensor
    source: str

    def sampler(
        self, *, context: int, batch_size: int, seed: int, node_id: NodeId
    ) -> WindowSampler:
        """The windows of one node; see `WindowSampler` for arguments and errors."""
        return WindowSampler(
            self.tokens, context=context, batch_size=batch_size, seed=seed, node_id=node_id
        )


def load_corpus(path: Path | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Corpus:
    """Read a text file, or all text files of a folder in order of their paths.

    Of a folder, hidden files and folders, links to folders and files with a zero byte in their
    first 8 KiB are left out. Files are joined as they are.

    Args:
        path: File or folder; None takes the source of the running Python's standard library,
            which every machine has (without its tests).
        max_bytes: Where reading stops; a warning says so.

    Raises:
        DataError: nothing is there, nothing in it is text, or it cannot be read.

    Cost: blocks on the disk; memory of the text once.
    """
    files = _standard_library() if path is None else _text_files(path)
    source = "the Python standard library" if path is None else str(path)
    try:
        data, num_files = _read(files, source, max_bytes)
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
    if not data:
        hint = "give a text file or a folder with text files (--data PATH)"
        raise DataError(f"no text in {source}: {hint}")
    logger.info("read %d bytes of text from %d files of %s", len(data), num_files, source)
    return Corpus(torch.frombuffer(data, dtype=torch.uint8), source)


def _standard_library() -> Iterator[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, folders, files in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _text_files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise DataError(f"no such file or folder: {path} (give a text file or a folder of them)")
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(folder, name)
            for name in sorted(files)
            if not name.startswith(".") and Path(folder, name).is_file()
        )


def _raise(error: OSError) -> None:
    raise error


def _read(files: Iterable[Path], source: str, max_bytes: int) -> tuple[bytearray, int]:
    data = bytearray()
    num_files = 0
    for path in files:
        room = max_bytes - len(data)
        with path.open("rb") as file:
            text = file.read(room + 1)
        if b"\0" in text[:_PROBE_BYTES]:
            continue
        num_files += 1
        data += text[:room]
        if len(text) > room:
            logger.warning("read only the first %d bytes of %s (data.max_bytes)", max_bytes, source)
            break
    return data, num_files
