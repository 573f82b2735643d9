"""Answers for a node's HTTP port while the node is still loading: it lives, and is not ready.

Imports next to nothing, as it runs while torch is imported. Refuses to know what is loaded.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Iterator

from neuroswarm.listening import bind
from neuroswarm.values import Endpoint

logger = logging.getLogger(__name__)

MAX_CALLERS = 64
"""Connections held at once; beyond that the oldest is closed."""

MAX_REQUEST_BYTES = 4096
CALLER_TIMEOUT_S = 5.0
_BACKLOG = 128
_LIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"
_STARTING = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 9\r\n"
    b"Connection: close\r\n\r\nstarting\n"
)


class EarlyAnswers:
    """Listens on a port and answers from a thread, until the socket is handed on.

    `/livez` gets 200, everything else 503. Nothing of a request is read but its first bytes.
    """

    def __init__(self, listen: Endpoint) -> None:
        """Listen from now on, and answer.

        Raises:
            OSError: the port cannot be had.
        """
        self._socket = bind(socket.SOCK_STREAM, listen)
        self._socket.listen(_BACKLOG)
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._callers: dict[socket.socket, tuple[float, bytes | None]] = {}
        self._thread = threading.Thread(target=self._run, name="early-answers", daemon=True)
        self._thread.start()

    def hand_over(self) -> socket.socket:
        """Stop answering; returns the socket, which never stopped listening.

        Who connects meanwhile waits for whoever accepts next.
        """
        self._wake.close()
        self._thread.join()
        self._woken.close()
        return self._socket

    def _run(self) -> None:
        with self._selector:
            self._selector.register(self._socket, selectors.EVENT_READ)
            self._selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in self._selector.select(CALLER_TIMEOUT_S)]
                if self._woken in ready:
                    break
                for source in ready:
                    assert isinstance(source, socket.socket), "only sockets are registered"
                    self._accept() if source is self._socket else self._read(source)
                self._close_all(before_s=time.monotonic() - CALLER_TIMEOUT_S)
            self._close_all(before_s=float("inf"))

    def _accept(self) -> None:
        try:
            caller, _ = self._socket.accept()
        except OSError as error:  # gone already, or no descriptor is left for it
            logger.debug("a caller was lost: %s", error)
            return
        if len(self._callers) >= MAX_CALLERS:
            self._close(next(iter(self._callers)))
        caller.setblocking(False)
        self._callers[caller] = (time.monotonic(), b"")
        self._selector.register(caller, selectors.EVENT_READ)

    def _read(self, caller: socket.socket) -> None:
        if caller not in self._callers:
            return  # closed a moment ago, to make room
        since_s, text = self._callers[caller]
        try:
            more = caller.recv(MAX_REQUEST_BYTES)
            if text is not None:
                text = self._answer(caller, text + more, is_whole=not more)
        except OSError as error:
            logger.debug("a caller left: %s", error)
            more = b""
        if more:
            self._callers[caller] = (since_s, text)
        else:
            self._close(caller)

    def _answer(self, caller: socket.socket, text: bytes, *, is_whole: bool) -> bytes | None:
        """Answer once enough is here; returns what is here until then, afterwards None.

        The connection is closed by the caller, or later: an answer is lost where the rest of
        a request comes to a closed socket.
        """
        if not is_whole and b"\r\n\r\n" not in text and len(text) < MAX_REQUEST_BYTES:
            return text
        caller.send(_LIVE if text.startswith(b"GET /livez ") else _STARTING)
        caller.shutdown(socket.SHUT_WR)
        return None

    def _close_all(self, *, before_s: float) -> None:
        for caller in [c for c, (since_s, _) in self._callers.items() if since_s < before_s]:
            self._close(caller)

    def _close(self, caller: socket.socket) -> None:
        del self._callers[caller]
        self._selector.unregister(caller)
        caller.close()


_HELD: dict[Endpoint, EarlyAnswers] = {}
"""The ports of this process that are answered early."""


@contextlib.contextmanager
def answering(listen: Endpoint) -> Iterator[None]:
    """Answer on a port until a `WebServer` takes it over, at most within the context.

    A port that cannot be had is left to the server, which says why; port 0 too.
    """
    if not listen.port:
        yield
        return
    try:
        _HELD[listen] = EarlyAnswers(listen)
    except OSError as error:
        logger.debug("no early answers on %s: %s", listen, error)
    try:
        yield
    finally:
        if (left := take_over(listen)) is not None:
            left.close()


def take_over(listen: Endpoint) -> socket.socket | None:
    """The listening socket of a port that was answered early; None if it was not."""
    early = _HELD.pop(listen, None)
    return None if early is None else early.hand_over()
