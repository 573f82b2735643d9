"""How many pools of memory the C library keeps for the process's threads.

Refuses to know what the memory is for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

MAX_ARENAS = 2
_M_ARENA_MAX = -8
"""Of `mallopt` in glibc's malloc.h."""


def limit_arenas(environment: Mapping[str, str]) -> bool:
    """Let glibc's malloc keep 2 pools instead of 8 for each processor core; before threads start.

    What a thread frees stays in its pool. A node's many threads each handle messages now and
    then, so that a few MB lie idle in every pool: 30 MB after 100,000 calls of hostile members.
    A choice of the user (`MALLOC_ARENA_MAX`) stands; other C libraries have no such pools.

    Returns:
        Whether the limit was set.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or "MALLOC_ARENA_MAX" in environment:
        return False
    return bool(mallopt(_M_ARENA_MAX, MAX_ARENAS))
