"""Writing that survives a power cut, and the translation of the disk's errors.

Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from neuroswarm.errors import CheckpointError
from neuroswarm.hardware.disk import sync

TEMPORARY = ".tmp-"
"""What is not whole yet, or about to go, has a name that begins like this."""


@contextlib.contextmanager
def translating(what: str, path: Path) -> Iterator[None]:
    """Turn what the disk refuses into CheckpointError "cannot <what> <path>: <reason>"."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot {what} {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise CheckpointError(f"cannot {what} {path}: {error}") from error


def clear_temporaries(folder: Path) -> None:
    """Delete what a killed writer left; what cannot be deleted stays. OSError without a folder."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                leftover.unlink()


def replace_file(path: Path, *parts: bytes) -> None:
    """Write `parts` to `path` so that a reader sees the old bytes or the new, never a mixture.

    Args:
        path: Replaced if it exists.
        parts: Written one after the other.

    Raises:
        CheckpointError: the disk does not take it; the old file is as it was.

    Cost: blocks for two waits on the disk.
    """
    temporary = path.with_name(path.name + ".tmp")
    with translating("write", path):
        try:
            with temporary.open("wb") as file:
                file.writelines(parts)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
