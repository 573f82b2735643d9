"""Control groups made for a while, with processes in them that get less of the machine.

For benchmarks and tests that need a small machine; needs the right to make groups (root). A new
group lies below the one of this process, so limits and accounts from above go on to hold.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from neuroswarm.hardware.control_groups import Version, walk_groups
from neuroswarm.hardware.facts import ROOT

PERIOD_US = 100_000

PREFIX = "neuroswarm-"


class SmallGroup:
    """One group; removed with the `with` block, once its processes are gone or moved out."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)

    @classmethod
    def make(
        cls, *, cpus: float | None = None, memory_bytes: int | None = None, root: Path = ROOT
    ) -> Self:
        """Make a group.

        Args:
            cpus: Processors' worth of time; None for no limit.
            memory_bytes: Memory, swap included where the kernel counts it; None for no limit.
            root: What stands for `/`.

        Raises:
            OSError: the system does not let this process limit others so.
        """
        folders: list[Path] = []
        try:
            if cpus is not None:
                folder, version = _make(root, "cpu", folders)
                quota = str(int(cpus * PERIOD_US))
                if version is Version.V2:
                    _write(folder / "cpu.max", f"{quota} {PERIOD_US}")
                else:
                    _write(folder / "cpu.cfs_period_us", str(PERIOD_US))
                    _write(folder / "cpu.cfs_quota_us", quota)
            if memory_bytes is not None:
                folder, version = _make(root, "memory", folders)
                name = "memory.max" if version is Version.V2 else "memory.limit_in_bytes"
                _write(folder / name, str(memory_bytes))
                swap = "memory.swap.max" if version is Version.V2 else "memory.memsw.limit_in_bytes"
                with contextlib.suppress(OSError):  # without an account of swap
                    _write(folder / swap, "0" if version is Version.V2 else str(memory_bytes))
        except OSError:
            for folder in folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        return cls(dict.fromkeys(folders))

    def add(self, process: int) -> None:
        """Move a process into the group; what it starts from then on is in it too."""
        for folder in self._folders:
            _write(folder / "cgroup.procs", str(process))

    def count_killed(self) -> int | None:
        """Processes of the group that the kernel killed for want of memory; None if not told."""
        for folder in self._folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    pairs = (line.split() for line in (folder / name).read_text().splitlines())
                    found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
                    if "oom_kill" in found:
                        return found["oom_kill"]
        return None

    def remove(self) -> None:
        """Remove it; whatever is still in it is moved to the group above."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                for process in (folder / "cgroup.procs").read_text().split():
                    with contextlib.suppress(OSError):  # it has ended meanwhile
                        _write(folder.parent / "cgroup.procs", process)
                folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


def _make(root: Path, controller: str, made: list[Path]) -> tuple[Path, Version]:
    """A new folder below this process's own group of a controller; noted in `made`."""
    files = {Version.V1: {"cpu": "cpu.cfs_quota_us", "memory": "memory.limit_in_bytes"}}
    files[Version.V2] = {"cpu": "cpu.max", "memory": "memory.max"}
    for parent, version in walk_groups(root, controller):
        if not parent.is_dir():
            continue  # the host's path, seen from a container
        same = [f for f in made if f.parent == parent]
        folder = same[0] if same else parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        if not same:
            folder.mkdir()
            made.append(folder)
        if (folder / files[version][controller]).exists():
            return folder, version
        if not same:
            folder.rmdir()
            made.remove(folder)
    raise OSError(f"no control group of {controller} can be made here")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
