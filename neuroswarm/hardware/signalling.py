"""Hearing signals on an event loop, on every system.

Refuses to know what they mean.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable


def on_signal(number: int, handler: Callable[[int], object]) -> None:
    """Have `handler` called with the signal's number on the running event loop.

    Windows' loops hear no signals by themselves: there Python's own handler, in the main thread,
    hands it over.
    """
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        signal.signal(number, lambda heard, _frame: loop.call_soon_threadsafe(handler, heard))
    else:
        loop.add_signal_handler(number, handler, number)
