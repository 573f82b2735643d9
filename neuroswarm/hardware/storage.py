"""What kind of disk a folder lies on.

Linux tells it in files; elsewhere nothing is known. Refuses to know what is written there.
"""

from __future__ import annotations

import os
from pathlib import Path

from neuroswarm.hardware.facts import ROOT

_CARDS = "mmcblk"


def is_sd_card(path: Path, *, root: Path = ROOT) -> bool:
    """Whether a folder, or the nearest one above it that exists, lies on an SD card or eMMC.

    False where it is not known.

    Args:
        path: The folder; need not exist yet.
        root: What stands for `/`; `path` itself is looked at as it is.
    """
    device = _device_of(path)
    if device is None:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        name = Path(os.readlink(root / "sys/dev/block" / number)).name
    except OSError:
        name = _mounted_from(root, number)
    return name.startswith(_CARDS)


def _device_of(path: Path) -> int | None:
    for folder in (path, *path.absolute().parents):
        try:
            return folder.stat().st_dev
        except OSError:
            continue
    return None


def _mounted_from(root: Path, number: str) -> str:
    """Name of the source of the mount with a device number, for file systems without a disk's.

    Fields of a line: 3 is the device number; 2 behind the dash is the source.
    """
    try:
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) > 2 and len(described) > 1 and fields[2] == number:
            return Path(described[1]).name
    return ""
