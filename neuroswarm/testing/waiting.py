"""Waiting for what other processes do.

Knows nothing of what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PACE_S = 0.1


def wait_until(condition: Callable[[], bool], *, within_s: float) -> None:
    """Ask for a condition ten times a second, until it holds; blocks the thread.

    Raises:
        TimeoutError: it does not hold after `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(PACE_S)
