"""Gives memory that is free within the process back to the system.

The C library keeps what was freed, and holes between blocks that live long add up: a node whose
fragments are of some megabytes would grow to several times what it uses. Knows nothing of what the
memory was for.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back_memory() -> None:
    """Hand free pages back to the system; nothing where the C library is not glibc.

    Threads: any. Takes some milliseconds, in which other threads wait to allocate.
    """
    trim = _find_trim()
    if trim is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None  # another C library
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found
