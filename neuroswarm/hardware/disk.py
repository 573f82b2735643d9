"""What a folder's disk can take: room, kind, whether it can be written, and when it has been.

Refuses to know what is to be written there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text
from neuroswarm.hardware.storage import is_sd_card


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """What is known of the disk under a folder that need not exist yet."""

    path: Path
    """The folder that was asked about."""
    free_bytes: int | None = None
    """Room for this user; None if it is not known."""
    failure: str = ""
    """Why nothing can be written there, in the system's words; empty if it can."""
    file_system: str = ""
    """Kind of the file system, like `ext4`, `overlay`, `tmpfs`; empty if it is not known."""
    is_card: bool = False
    """Whether it is an SD card or eMMC."""


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk; OSError if it does not get there.

    Windows opens no folders: there the file system itself keeps names in order.
    """
    if sys.platform == "win32":
        if path.is_dir():
            return
        descriptor = os.open(path, os.O_RDWR)  # it syncs only what may be written
    else:
        descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_own(path: Path) -> bool:
    """Whether this user owns it; on Windows, where folders of temporary files are the user's."""
    return sys.platform == "win32" or path.stat().st_uid == os.getuid()


def take_from_others(descriptor: int) -> bool:
    """Let only this user read an open file; whether others could. On Windows folders decide it."""
    if sys.platform == "win32" or not os.fstat(descriptor).st_mode & 0o077:
        return False
    os.fchmod(descriptor, 0o600)
    return True


def read_disk(path: Path, root: Path = ROOT) -> DiskFacts:
    """Look at the folder, or the nearest one above it that exists; writes and removes one file.

    Args:
        path: The folder.
        root: What stands for `/` for the kernel's files; `path` is looked at as it is.
    """
    place = _nearest(path.expanduser().absolute())
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        return DiskFacts(path, failure=_words(error))
    return DiskFacts(
        path,
        free_bytes=free_bytes,
        failure=_try_writing(place),
        file_system=_file_system(place, root),
        is_card=is_sd_card(place, root=root),
    )


def _nearest(path: Path) -> Path:
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))


def _try_writing(folder: Path) -> str:
    """Empty, or why a file cannot be written durably."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"neuroswarm doctor\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return _words(error)
    return ""


def _file_system(place: Path, root: Path) -> str:
    """Kind of the mount that is nearest above the folder.

    Fields of a line: 4 is the place; the first behind the dash is the kind.
    """
    found = (0, "")
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) > 4 and described and place.is_relative_to(fields[4]):
            found = max(found, (len(fields[4]), described[0]))
    return found[1]


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
