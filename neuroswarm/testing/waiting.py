"""Waiting for what other processes and other tasks do.

Knows nothing of what is waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PACE_S = 0.1
LOOK_S = 0.02


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str = "") -> None:
    """Ask for a condition ten times a second, until it holds; blocks the thread.

    Raises:
        TimeoutError: it does not hold after `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(PACE_S)


async def until(condition: Callable[[], bool], *, within_s: float = 90.0, what: str = "") -> None:
    """Look at a condition again and again, until it holds, and let other tasks run meanwhile.

    Raises:
        TimeoutError: it does not hold after `within_s` seconds; says `what` was waited for.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(LOOK_S)
