"""Says that a process lives while it still imports what its HTTP server needs, for minutes maybe.

Refuses to know what is imported. Needs nothing but the standard library and one thread.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from neuroswarm.errors import ConfigError
from neuroswarm.listening import bind
from neuroswarm.values import Endpoint

BACKLOG = 128
MAX_REQUEST_BYTES = 4096
TIMEOUT_S = 1.0
"""For all of a request, and for the answer: callers are served one after the other."""

_ANSWERS = {b"/livez": (b"200 OK", b"ok\n"), b"/readyz": (b"503 Starting", b"not ready\n")}


def bind_http(listen: Endpoint) -> socket.socket:
    """A bound socket for an HTTP server.

    Raises:
        ConfigError: the port is in use, or the address cannot be listened on.
    """
    try:
        return bind(socket.SOCK_STREAM, listen)
    except OSError as error:
        raise ConfigError(_explain_bind(listen, error)) from error


class FirstAnswers:
    """Answers `/livez` and `/readyz` on a socket until the server takes that over.

    All else is closed unanswered, as if nobody listened: others ask again later.

    Threads: answers in one of its own; `take` may be called from any.
    """

    def __init__(self, listen: Endpoint) -> None:
        """Bind the socket; ConfigError as `bind_http`."""
        self._listen = listen
        self._socket: socket.socket | None = bind_http(listen)
        self._socket.listen(BACKLOG)
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread = threading.Thread(
            target=self._serve, args=(self._socket,), name="first answers", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it answers."""
        assert self._socket is not None, "not taken yet"
        return int(self._socket.getsockname()[1])

    def take(self, listen: Endpoint) -> socket.socket:
        """The listening socket, which the caller owns from now on; nothing else answers on it.

        A second time, or for another address, a new one (ConfigError as `bind_http`).
        Blocks for two timeouts at most.
        """
        taken, self._socket = self._socket, None
        self._end()
        if taken is not None and listen == self._listen:
            return taken
        if taken is not None:
            taken.close()
        return bind_http(listen)

    def _end(self) -> None:
        self._stop_writer.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        self._stop_reader.close()
        if self._socket is not None:
            self._socket.close()

    def _serve(self, listening: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listening, selectors.EVENT_READ)
            selector.register(self._stop_reader, selectors.EVENT_READ)
            while not any(key.fileobj is self._stop_reader for key, _ in selector.select()):
                try:
                    caller, _ = listening.accept()
                except OSError:  # it hung up before it was taken
                    continue
                with caller:
                    _answer(caller)


def _answer(caller: socket.socket) -> None:
    """One request, which comes in one piece or not at all."""
    caller.settimeout(TIMEOUT_S)
    try:
        method, path, *_ = [*caller.recv(MAX_REQUEST_BYTES).split(b" ", 2), b"", b""]
        if method == b"GET" and path in _ANSWERS:
            status, body = _ANSWERS[path]
            head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n" % (
                status, len(body),
            )  # fmt: skip
            caller.sendall(head + b"Content-Type: text/plain\r\n\r\n" + body)
    except OSError:  # a caller that is gone, or sends nothing
        return


def _explain_bind(listen: Endpoint, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port in use: {listen.port} (HTTP, on {listen.host}); give another with --port"
    return f"cannot listen on {listen} (HTTP): {error.strerror}"
