"""What asyncio says when the machine has no descriptors left for new connections, in one line.

A flood of connections otherwise fills the log: asyncio writes a traceback for each connection that
it cannot accept, some thousand a second. Refuses to know whose connections they are.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.net.occasional import Occasional

logger = logging.getLogger(__name__)

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class AcceptComplaints:
    """A loop's exception handler that tells of refused connections once a minute."""

    def __init__(self, clock: Clock) -> None:
        self._occasional = Occasional(clock)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what asyncio reports; all but connections it could not accept is told as ever."""
        error = context.get("exception")
        is_accept = str(context.get("message", "")).startswith("socket.accept()")
        if not is_accept or not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif num_events := self._occasional.count():
            logger.warning(
                "connections not accepted: %s (tried %d times since the last such line); many "
                "connections at once, or a low limit of open files (ulimit -n)",
                error.strerror,
                num_events,
            )


@contextmanager
def quiet_accepting(clock: Clock) -> Iterator[None]:
    """Tell of refused connections once a minute, unless the loop's owner set a handler."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is not None:
        yield
        return
    complaints = AcceptComplaints(clock)
    loop.set_exception_handler(complaints)
    try:
        yield
    finally:
        if loop.get_exception_handler() is complaints:
            loop.set_exception_handler(None)
