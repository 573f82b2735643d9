"""Running a long-lived service from the command line until it ends or a signal stops it.

The first SIGTERM or SIGINT stops gracefully, a second one leaves at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from neuroswarm.cli.allocator import limit_arenas
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.file_limit import raise_file_limit

logger = logging.getLogger(__name__)

S = TypeVar("S")

STOP_DEADLINE_S = 80.0
"""A stop that takes longer is cut short; orchestrators kill after 90 s."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """What SIGTERM and SIGINT do to the task that runs a service."""

    def __init__(self, task: asyncio.Task[Any], leave: Callable[[int], object] = os._exit) -> None:
        self._task = task
        self._leave = leave
        self._is_stopping = False
        self.has_cancelled = False

    def on_signal(self, number: int) -> None:
        """Cancel the task on the first signal, end the process on the second."""
        if self.has_cancelled or (self._is_stopping and number == signal.SIGINT):
            self._leave(128 + number)
            return
        if self._is_stopping:
            return  # it ends by itself already; a graceful stop is what SIGTERM asks for
        self.has_cancelled = True
        logger.info("stopping (%s); again to leave at once", signal.Signals(number).name)
        self._task.cancel()

    def begin_stop(self) -> None:
        """From here on the service stops; a first signal must not disturb that."""
        self._is_stopping = True


def run_service(
    make: Callable[[], AbstractAsyncContextManager[S]], work: Callable[[S], Awaitable[None]]
) -> None:
    """Make and start a service, do the work, stop the service; returns early when signalled.

    Creates the event loop: the only place of the command line that does.
    """
    raise_file_limit()
    limit_arenas(os.environ)
    asyncio.run(_run(make, work))


async def _run(
    make: Callable[[], AbstractAsyncContextManager[S]], work: Callable[[S], Awaitable[None]]
) -> None:
    task = asyncio.current_task()
    assert task is not None, "a coroutine that runs has a task"
    signals = StopSignals(task)
    watchdog = threading.Timer(STOP_DEADLINE_S, os._exit, (ExitCode.STOP_HANGS,))
    watchdog.daemon = True
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.on_signal, number)
    try:
        async with make() as service:
            try:
                await work(service)
            finally:
                signals.begin_stop()
                watchdog.start()
    except asyncio.CancelledError:
        if not signals.has_cancelled:
            raise
    finally:
        watchdog.cancel()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
