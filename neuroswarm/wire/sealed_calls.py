"""What every sealed request over HTTP and its answer have in common.

Refuses to know what is asked; the contexts are those of `discovery.tracker_messages` and
`wire.control`.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from neuroswarm.errors import MessageTooLarge


class Sealing(Protocol):
    """Seals and opens with the swarm's datagram key."""

    def seal(self, data: bytes, context: bytes = b"") -> bytes:
        """Encrypt and authenticate."""
        ...

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Return what was sealed in this context; BadSignature otherwise."""
        ...


def reply_context(kind: bytes, request: bytes) -> bytes:
    """Context of the answer to the request with that body: it opens as an answer to no other."""
    return kind + hashlib.sha256(request).digest()


def check_size(body: bytes, max_bytes: int) -> None:
    """MessageTooLarge if a sealed body is above `max_bytes`."""
    if len(body) > max_bytes:
        raise MessageTooLarge(f"body: {len(body)} bytes (limit {max_bytes})")
