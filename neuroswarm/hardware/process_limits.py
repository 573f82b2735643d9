"""What the system lets this process have, and what it took: files, address space, memory.

Unix only; elsewhere nothing is known, and nothing limited. Refuses to judge.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from neuroswarm.hardware.facts import ROOT
from neuroswarm.hardware.kernel_files import read_text

WANTED_FILES = 65536


def raise_file_limit() -> int | None:
    """Raise the soft limit as far as the hard one allows, at most to `WANTED_FILES`.

    Usual soft limits are those of desktop programs (256 to 1024): a few hundred callers that say
    nothing would leave none for the node's own files. Returns the limit that holds then; None
    where there is none.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems promise more than they give
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def read_address_space_limit() -> int | None:
    """Limit of this process's address space in bytes (`ulimit -v`); None without one."""
    if sys.platform == "win32":
        return None
    import resource

    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if space == resource.RLIM_INFINITY else space


def read_peak_bytes() -> int | None:
    """Most memory that this process has used; None if it is not known."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def read_peak_space_bytes(root: Path = ROOT) -> int | None:
    """Most address space that this process has used; None if it is not known."""
    return _read_status(root / "proc/self/status", "VmPeak:")


def read_own_bytes(process: int, root: Path = ROOT) -> int:
    """Memory of a process that the system cannot take back, in bytes; 0 if it is not known."""
    status = root / f"proc/{process}/status"
    return sum(_read_status(status, name) or 0 for name in ("RssAnon:", "RssShmem:"))


def _read_status(path: Path, name: str) -> int | None:
    for line in read_text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return 1024 * int(words[1])
    return None
