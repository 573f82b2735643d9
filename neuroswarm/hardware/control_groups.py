"""The control groups that this process is in, from its own up to the top.

Refuses to know what a group limits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path

from neuroswarm.hardware.kernel_files import read_text


class Version(enum.Enum):
    """Of control groups; they have other files, and a machine may have both at once."""

    V1 = 1
    V2 = 2


def walk_groups(root: Path, controller: str) -> Iterator[tuple[Path, Version]]:
    """Each folder that may limit this process, nearest first.

    A limit holds for all groups below it, so the one that binds may be any of these. In a
    container the path may be the host's, of which only the top is to be seen.

    Args:
        root: What stands for `/`.
        controller: Name of the controller in version 1: `cpu`, `memory`.
    """
    base = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            if not controllers:
                yield base / folder, Version.V2
            elif controller in controllers.split(","):
                yield base / controller / folder, Version.V1
