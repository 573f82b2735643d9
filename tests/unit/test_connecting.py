"""What users are told of a connection that failed."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import urllib.error

import pytest

from neuroswarm.connecting import explain_failure

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
NOT_TRUSTED = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate")
NOT_TRUSTED.verify_message = "self-signed certificate"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (REFUSED, "connection refused"),
        (urllib.error.URLError(REFUSED), "connection refused"),
        (urllib.error.URLError("no host given"), "no host given"),
        (socket.gaierror(socket.EAI_NONAME, "Name not known"), "name not known"),
        (TimeoutError("timed out"), "no answer in time"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "it does not answer TLS (try http://"),
        (urllib.error.URLError(ssl.SSLEOFError(8, "EOF")), "it does not answer TLS (try http://"),
        (NOT_TRUSTED, "its TLS certificate is not trusted: self-signed certificate"),
        (http.client.BadStatusLine("\\x15\\x03"), "what answers does not speak HTTP"),
        (http.client.RemoteDisconnected("Remote end"), "the connection was closed"),
        (OSError("unknown host Pi"), "unknown host Pi"),
        (OSError(), "OSError"),
    ],
    ids=repr,
)
def test_the_reason_is_told_in_plain_words(error: Exception, said: str):
    assert explain_failure(error).startswith(said)
