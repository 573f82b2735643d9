"""The text files of a folder, in an order that is the same on every machine.

Knows nothing of tokens.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from neuroswarm.errors import DataError

_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
"""Parts of the standard library's folder that are not its source."""

_PROBE_BYTES = 8192


def find_text_files(path: Path | None) -> Iterator[Path]:
    """A file, or all files of a folder in order of their paths; binary ones included.

    Hidden files and folders, and links to folders, are left out.

    Args:
        path: File or folder; None takes the source of the running Python's standard library,
            which every machine has (without its tests).

    Raises:
        DataError: nothing is there.
        OSError: a folder cannot be read.
    """
    return _standard_library() if path is None else _walk(path)


def is_binary(beginning: bytes) -> bool:
    """Whether a file that begins so is no text: it has a zero byte in its first 8 KiB."""
    return b"\0" in beginning[:_PROBE_BYTES]


def _standard_library() -> Iterator[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    for folder, folders, files in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _walk(path: Path) -> Iterator[Path]:
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
