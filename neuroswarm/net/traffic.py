"""Counters of the bytes that a transport moved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Bytes of whole messages, without the framing below them."""

    bytes_sent: int = 0
    bytes_received: int = 0
