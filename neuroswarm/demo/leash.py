"""Replaces itself by another command that the system kills as soon as its parent is gone.

`python -m neuroswarm.demo.leash PARENT COMMAND...`; started by the demo for each of its processes,
so that none outlives it, however it ends. Elsewhere than on Linux only the command is run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask to be killed with the parent, then become the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        _die_with_the_parent()
    if os.getppid() != parent:  # it ended before the request
        sys.exit("the parent is gone")
    os.execv(command[0], command)


def _die_with_the_parent() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])
