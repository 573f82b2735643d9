"""Locks on files that the system drops when the process ends, however it ends.

Knows nothing of what the files are for.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

Lock = Callable[[int], None]
"""Locks an open file for this process alone, at once; OSError if another one has it."""

_LOCKED = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""What `flock` and Windows say of a file that somebody else has locked."""


def try_lock(descriptor: int, lock: Lock | None = None) -> bool:
    """Lock an open file for this process alone; whether nobody else had it.

    Args:
        descriptor: Of the file; the lock goes when it is closed. Nobody reads the file itself:
            Windows keeps others from its first byte.
        lock: How to; None takes this system's way.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        (lock or _choose())(descriptor)
    except OSError as error:
        if error.errno in _LOCKED:
            return False
        raise
    return True


def _choose() -> Lock:
    """`flock`, or on Windows a lock on the first byte, whether the file has it or not."""
    if sys.platform == "win32":
        import msvcrt

        return lambda descriptor: msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    import fcntl

    return lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
