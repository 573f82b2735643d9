"""How an HTTP server bears callers that mean it no good: few connections, few words in the log.

Knows nothing of what is served.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

MAX_CONNECTIONS = 128
"""Connections held at once; beyond that the oldest gives way, so that probes get through."""

IDLE_TIMEOUT_S = 20.0
"""Longest wait for the next request on a connection, its headers included."""


class BoundedConnections:
    """Makes the protocol of every connection; what `loop.create_server` calls."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._given_up: set[web.RequestHandler] = set()

    def __call__(self) -> web.RequestHandler:
        """The protocol of a new connection."""
        known = self._server.connections
        self._given_up.intersection_update(known)  # closing takes a moment
        held = [connection for connection in known if connection not in self._given_up]
        for connection in held[: max(0, len(held) + 1 - MAX_CONNECTIONS)]:
            self._given_up.add(connection)
            connection.force_close()
        return self._server()


def make_logger(name: str) -> logging.Logger:
    """A logger for aiohttp that tells of bugs, not of what callers send."""
    logger = logging.getLogger(name)
    if _is_bug not in logger.filters:
        logger.addFilter(_is_bug)
    return logger


def _is_bug(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | OSError)
