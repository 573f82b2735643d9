"""Who goes first when there is less processor time than work.

Refuses to know what the work is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

import psutil

MAX_NICENESS = 19


def add_niceness(more: int) -> None:
    """Let others go before the calling thread and those that it starts; Linux only.

    Elsewhere priorities are those of processes: `lower_process` does what can be done there.

    Args:
        more: Added to what it has, 0 to 19.
    """
    if sys.platform == "linux":
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + more)


def lower_process(niceness: int) -> None:
    """Let the programs of the machine's owner go before this whole process.

    Args:
        niceness: Of this process from now on, 0 to 19, unless it is higher already. On Windows
            anything above 0 is "below normal", from 10 on "idle".
    """
    process = psutil.Process()
    with contextlib.suppress(psutil.Error, OSError):  # a sandbox forbids it: nothing depends on it
        if sys.platform == "win32":
            if niceness > 0:
                low, idle = psutil.BELOW_NORMAL_PRIORITY_CLASS, psutil.IDLE_PRIORITY_CLASS
                process.nice(idle if niceness >= 10 else low)
        elif process.nice() < niceness:
            process.nice(min(niceness, MAX_NICENESS))
