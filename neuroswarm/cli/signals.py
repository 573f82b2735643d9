"""Running a long-lived service from the command line until it ends or a signal stops it.

The first SIGTERM or SIGINT stops gracefully, a second one leaves at once. So does the end of the
terminal (SIGHUP), unless it is ignored, as `nohup` has it; it comes more than once and is never
taken for a second one. A stop that was asked
for ends in time whatever hangs: what is on the disk is whole at any moment, as after a power cut.
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
from neuroswarm.cli.notify import MICROSECONDS, Herald, Notifier
from neuroswarm.hardware.process_limits import raise_file_limit
from neuroswarm.hardware.signalling import on_signal

logger = logging.getLogger(__name__)

S = TypeVar("S")

STOP_DEADLINE_S = 80.0
"""The end of a run that takes longer is cut short: the stop of some part hangs."""

LOADING_S = 600.0
"""Time asked of a service manager for what is imported and read before the event loop runs."""

LEAVE_DEADLINE_S = 7.0
"""Time for a stop that a signal asks for. Longer takes only what need not be waited for: an inner
step of a large model, an import, a disk; orchestrators kill after 10 s."""

_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none
_SIGNALS = (signal.SIGTERM, signal.SIGINT, *(() if _HANGUP is None else (_HANGUP,)))


class Watchdog:
    """Ends the process at a deadline, from a thread of its own."""

    def __init__(self, leave: Callable[[int], object] = os._exit) -> None:
        self._leave = leave
        self._timer: threading.Timer | None = None
        self._is_urgent = False

    def start(self, within_s: float, code: ExitCode) -> None:
        """Leave with that code after so many seconds; a deadline for success is not moved."""
        if self._is_urgent:
            return
        self.cancel()
        self._is_urgent = code is ExitCode.OK
        self._timer = threading.Timer(within_s, self._bite, (within_s, code))
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """The process ends by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _bite(self, within_s: float, code: ExitCode) -> None:
        logger.warning(
            "leaving: not everything stopped within %g s; a restart goes on from the last "
            "checkpoint",
            within_s,
        )
        self._leave(code)


class StopSignals:
    """What SIGTERM and SIGINT do to the task that runs a service."""

    def __init__(
        self,
        task: asyncio.Task[Any],
        leave: Callable[[int], object] = os._exit,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._task = task
        self._leave = leave
        self._watchdog = watchdog or Watchdog(leave)
        self._is_stopping = False
        self.has_cancelled = False

    def on_signal(self, number: int) -> None:
        """Cancel the task on the first signal, end the process on the second."""
        if number == _HANGUP and (self.has_cancelled or self._is_stopping):
            return
        if self.has_cancelled or (self._is_stopping and number == signal.SIGINT):
            self._leave(128 + number)
            return
        self._watchdog.start(LEAVE_DEADLINE_S, ExitCode.OK)
        if self._is_stopping:
            return  # it ends by itself already; a graceful stop is what SIGTERM asks for
        self.has_cancelled = True
        hint = "" if number == _HANGUP else "; again to leave at once"
        logger.info("stopping (%s)%s", signal.Signals(number).name, hint)
        self._task.cancel()

    def begin_stop(self) -> None:
        """From here on the service stops; a first signal must not disturb that."""
        self._is_stopping = True
        self._watchdog.start(STOP_DEADLINE_S, ExitCode.STOP_HANGS)


def run_service(
    make: Callable[[], AbstractAsyncContextManager[S]],
    work: Callable[[S], Awaitable[None]],
    describe: Callable[[Any], str] = lambda _made: "running",
) -> None:
    """Make and start a service, do the work, stop the service; returns early when signalled.

    A service manager that started the process is told how it goes (`cli/notify.py`); `describe`
    says so in one line, of what was made, from its start on.

    Making it may import for seconds, so that comes first: the event loop could not hear a signal.
    Creates the event loop: the only place of the command line that does.
    """
    raise_file_limit()
    limit_arenas(os.environ)
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    notifier = Notifier.of_environment(os.environ)
    notifier.tell(STATUS="loading", EXTEND_TIMEOUT_USEC=int(LOADING_S * MICROSECONDS))
    service, watchdog = make(), Watchdog()
    herald = Herald(notifier, lambda: describe(service))
    try:
        asyncio.run(_run(service, work, watchdog, herald))
    finally:
        watchdog.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    made: AbstractAsyncContextManager[S],
    work: Callable[[S], Awaitable[None]],
    watchdog: Watchdog,
    herald: Herald,
) -> None:
    task = asyncio.current_task()
    assert task is not None, "a coroutine that runs has a task"
    signals = StopSignals(task, watchdog=watchdog)
    for number in _SIGNALS:
        if number != _HANGUP or signal.getsignal(number) != signal.SIG_IGN:
            on_signal(number, signals.on_signal)
    try:
        async with herald, made as service:
            herald.ready()
            try:
                await work(service)
            finally:
                signals.begin_stop()
                herald.stopping(STOP_DEADLINE_S)
    except asyncio.CancelledError:
        if not signals.has_cancelled:
            raise
