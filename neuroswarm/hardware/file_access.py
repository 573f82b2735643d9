"""Reading and writing at a place of an open file, and flags for opening it, on every system.

Unix does each in one call, which threads may share; elsewhere one thread at a time moves the
file's position. Knows nothing of what is in the files.
"""

from __future__ import annotations

import os
import threading

CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
"""Flag of `os.open`: children do not inherit the file. On Windows they never do."""
NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open`: a symbolic link is refused. Windows has no such flag."""
BINARY: int = getattr(os, "O_BINARY", 0)
"""Flag of `os.open`: ends of lines stay as they are. Only Windows would change them."""

_moving = threading.Lock()


def read_at(descriptor: int, num_bytes: int, at: int) -> bytes:
    """At most so many bytes from a place on; fewer at the end. OSError as `os.read`."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, num_bytes, at)
    with _moving:
        os.lseek(descriptor, at, os.SEEK_SET)
        return os.read(descriptor, num_bytes)


def read_into(descriptor: int, target: memoryview, at: int) -> int:
    """Fill `target`, of bytes, from a place on; how many there were. OSError as `os.read`."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [target], at)
    data = read_at(descriptor, len(target), at)
    target[: len(data)] = data
    return len(data)


def write_at(descriptor: int, data: memoryview, at: int) -> int:
    """Write bytes to a place; how many were written. OSError as `os.write`."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, at)
    with _moving:
        os.lseek(descriptor, at, os.SEEK_SET)
        return os.write(descriptor, data)
