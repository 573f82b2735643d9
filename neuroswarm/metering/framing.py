"""What goes over the link besides messages, by measurement.

Nobody below tells a process how many bytes its sockets move: HTTP/2, TLS, TCP and IP headers,
acknowledgements, handshakes and keepalive are estimated, rather too many than too few
(docs/metered-links.md has the measurement).
"""

from __future__ import annotations

from dataclasses import dataclass

CALL_BYTES = 300
"""Bytes beside one message of a call, per direction: headers, proof, packets. Measured 255 to 330
for a request with its reply, halved."""

CALL_SHARE = 0.05
"""Share of a call's bytes that packets add. Measured 0.041 to 0.055."""

HANDSHAKE_BYTES = 4200
"""A connection made for one call, per direction. Measured 8,280 with the call, both directions."""

DATAGRAM_BYTES = 48
"""Headers of one datagram: 28 with IPv4, 48 with IPv6."""

HTTP_BYTES = 600
"""Bytes beside one HTTP request or answer, with its connection."""

UPKEEP_BYTES_PER_S = 10.0
"""Keepalive of a connection to one peer, per direction. Measured 1,235 in 62 s for both."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes on the link since the start."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.sent + other.sent, self.received + other.received)


def estimate_calls(num_bytes: int, num_messages: int) -> int:
    """Bytes on the link for that many messages of calls with that many bytes in all."""
    return int(num_bytes * (1 + CALL_SHARE)) + CALL_BYTES * num_messages


def estimate_datagrams(num_bytes: int, num_datagrams: int) -> int:
    """Bytes on the link for datagrams."""
    return num_bytes + DATAGRAM_BYTES * num_datagrams


def estimate_http(num_bytes: int, num_requests: int) -> int:
    """Bytes on the link in one direction for requests with bodies of that many bytes in all."""
    return int(num_bytes * (1 + CALL_SHARE)) + HTTP_BYTES * num_requests
