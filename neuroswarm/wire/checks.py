"""The checks that decoders share: lengths, counts, texts and numbers within their limits.

Refuses to know of which message a value is.
"""

from __future__ import annotations

import math

from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.values import HASH_BYTES

MAX_INSTANT_S = 253_402_300_799.0
"""The last second of the year 9999, the last one that calendars show, in seconds since 1970."""


def check_hash(what: str, value: bytes) -> None:
    """SchemaMismatch unless `value` has the length of a hash."""
    check_length(what, value, HASH_BYTES)


def check_length(what: str, value: bytes, num_bytes: int) -> None:
    """SchemaMismatch unless `value` has exactly that many bytes."""
    if len(value) != num_bytes:
        raise SchemaMismatch(f"{what}: {len(value)} bytes (needs {num_bytes})")


def check_count(what: str, value: int, limit: int) -> None:
    """MessageTooLarge if `value` is above its limit."""
    if value > limit:
        raise MessageTooLarge(f"{what} out of range: {value} (limit {limit})")


def check_text(what: str, value: str, limit: int) -> None:
    """SchemaMismatch unless `value` has 1 to `limit` characters."""
    if not value or len(value) > limit:
        raise SchemaMismatch(f"{what}: {len(value)} characters (1 to {limit})")


def check_instant(what: str, value: float) -> None:
    """SchemaMismatch unless `value`, seconds since 1970, is an instant of the years 1970 to 9999.

    No clock tells another, and arithmetic with one that is finite and no more may overflow.
    """
    if not 0.0 <= value <= MAX_INSTANT_S:
        raise SchemaMismatch(f"{what}: {value:g} (0 to {MAX_INSTANT_S:g}, seconds since 1970)")


def check_finite(what: str, value: float) -> None:
    """SchemaMismatch if `value` is infinite or not a number."""
    if not math.isfinite(value):
        raise SchemaMismatch(f"{what} is not finite")
