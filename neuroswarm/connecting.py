"""Why a connection failed, in plain words.

Refuses to know who was called, and what for.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.error


def explain_failure(error: BaseException) -> str:
    """The reason, lower case and without the names and numbers of Python's errors.

    Args:
        error: What a socket, an HTTP client or a resolver raised; errors that only wrap another
            one (`reason` of urllib's, `os_error` of aiohttp's) are looked into.
    """
    cause = error
    for name in ("reason", "os_error", "certificate_error"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            cause = inner
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its TLS certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):  # its errno is of another count than the system's
        return "it does not answer TLS (try http:// instead of https://)"
    if isinstance(cause, http.client.HTTPException) and not isinstance(cause, OSError):
        return "what answers does not speak HTTP"
    if isinstance(cause, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(cause, TimeoutError) and cause.errno is None:
        return "no answer in time"
    if isinstance(cause, OSError) and cause.errno is not None:
        return (os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)).lower()
    if isinstance(cause, urllib.error.URLError):
        return str(cause.reason)
    return str(cause) or type(cause).__name__
