"""What a long-lived command tells its service manager: that it is ready, how it is, that it lives.

The protocol is systemd's (sd_notify(3)): datagrams of `NAME=value` lines to a Unix socket that
the environment names. Without one, as outside systemd, nothing is told. Refuses to know what a
node is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from neuroswarm.service import Service

logger = logging.getLogger(__name__)

TELL_S = 10.0
"""Longest time between two tellings of how it is."""

START_S = 180.0
"""What each telling asks for while it starts: who is too busy to tell for so long hangs."""

MAX_STATUS_CHARS = 200
MICROSECONDS = 1_000_000
MAX_USEC_DIGITS = 20
"""Of systemd's own numbers, which have 64 bits."""


class Notifier:
    """Sends to the service manager, if there is one; what does not arrive is not sent again."""

    def __init__(self, address: str | None = None, *, watchdog_s: float | None = None) -> None:
        """Tell the socket at this address.

        Args:
            address: Path, or a name in the abstract namespace behind `@`; None: nobody is told.
            watchdog_s: Seconds without a sign of life after which the manager ends the process;
                None where it does not watch.
        """
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address and address[0] == "@" else address
        self._has_failed = False

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """The manager that started this process, as `NOTIFY_SOCKET` and `WATCHDOG_*` name it."""
        address = environment.get("NOTIFY_SOCKET", "")
        is_known = address[:1] in ("/", "@") and hasattr(socket, "AF_UNIX")
        is_meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "")
        is_number = usec.isdecimal() and len(usec) <= MAX_USEC_DIGITS
        watched = int(usec) / MICROSECONDS if is_meant and is_number and int(usec) else None
        return cls(address if is_known else None, watchdog_s=watched)

    @property
    def is_heard(self) -> bool:
        """Whether there is somebody to tell."""
        return self._address is not None

    def tell(self, **fields: object) -> None:
        """Send fields as lines, without waiting; line breaks in values become blanks."""
        if self._address is None:
            return
        lines = [f"{name}={' '.join(str(value).split())}" for name, value in fields.items()]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.setblocking(False)
                end.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("the service manager cannot be told: %s", error.strerror or error)


class Herald(Service):
    """Tells the manager again and again how a service is, from the event loop that runs it.

    The sign of life that a watchdog waits for comes from that loop: where it hangs, there is none.
    """

    name = "herald"

    def __init__(self, notifier: Notifier, describe: Callable[[], str]) -> None:
        """Tell what `describe` says, one line for people."""
        super().__init__()
        self._notifier = notifier
        self._describe = describe
        self._phase: Mapping[str, object] = {"EXTEND_TIMEOUT_USEC": int(START_S * MICROSECONDS)}
        self._changed = asyncio.Event()
        self._is_stopping = False

    def ready(self) -> None:
        """The service has started. Said again with every telling: a full socket loses one."""
        watched = self._notifier.watchdog_s is not None
        self._phase = {"READY": 1, "WATCHDOG": 1} if watched else {"READY": 1}
        self._changed.set()

    def stopping(self, within_s: float) -> None:
        """The service stops, which may take that long."""
        self._is_stopping = True
        self._notifier.tell(
            STOPPING=1,
            STATUS="leaving the swarm and saving",
            EXTEND_TIMEOUT_USEC=int(within_s * MICROSECONDS),
        )
        self._changed.set()

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack  # holds nothing

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._tell(),) if self._notifier.is_heard else ()

    async def _tell(self) -> None:
        every_s = min(TELL_S, (self._notifier.watchdog_s or TELL_S * 4) / 4)
        while not self._is_stopping:
            self._notifier.tell(STATUS=self._status(), **self._phase)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._changed.wait()

    def _status(self) -> str:
        return self._describe()[:MAX_STATUS_CHARS]
