"""Bytes sent and received in the present day and month, and how that is written down.

Pure. What is written says how many bytes may have been moved since: a node that is killed counts
them as moved, so that being killed often exceeds no cap.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from neuroswarm.errors import SchemaMismatch

VERSION = 1
MAX_BYTES = 2**62


@dataclass(slots=True)
class Count:
    """Bytes of one period."""

    label: str = ""
    """The period; that of a later one is a greater text. Empty before the first."""
    sent: int = 0
    received: int = 0

    @property
    def total(self) -> int:
        """Both directions: data plans count both."""
        return self.sent + self.received

    def turn(self, label: str) -> bool:
        """Begin a new period if the label is a later one; returns whether.

        An earlier label is a clock put right: the bytes stay, under that label.
        """
        is_later = label > self.label
        self.label = label
        if is_later:
            self.sent = self.received = 0
        return is_later

    def add(self, sent: int, received: int) -> None:
        """Count bytes."""
        self.sent = min(MAX_BYTES, self.sent + sent)
        self.received = min(MAX_BYTES, self.received + received)


@dataclass(slots=True)
class Tally:
    """The counts of now."""

    day: Count = field(default_factory=Count)
    month: Count = field(default_factory=Count)

    def add(self, sent: int, received: int) -> None:
        """Count bytes, >= 0."""
        self.day.add(sent, received)
        self.month.add(sent, received)

    def turn(self, day: str, month: str) -> bool:
        """It is that day and month now; returns whether one of them is a new one."""
        is_new_day, is_new_month = self.day.turn(day), self.month.turn(month)
        return is_new_day or is_new_month


def encode_tally(tally: Tally, *, at: float, unseen_bytes: int) -> bytes:
    """The tally as JSON.

    Args:
        tally: What is counted.
        at: When, seconds since 1970.
        unseen_bytes: Bytes that may be moved before the next time it is written; 0 at the end.
    """
    values = {
        "version": VERSION,
        "at": at,
        "unseen_bytes": unseen_bytes,
        "day": asdict(tally.day),
        "month": asdict(tally.month),
    }
    return json.dumps(values).encode() + b"\n"


def decode_tally(data: bytes) -> tuple[Tally, float]:
    """What `encode_tally` made, unseen bytes counted as received, and when it was.

    Raises:
        SchemaMismatch: it is damaged, or of a later version.
    """
    try:
        values = json.loads(data)
        if values["version"] != VERSION:
            raise SchemaMismatch(f"tally of version {values['version']!r} (this is {VERSION})")
        tally = Tally(_count(values["day"]), _count(values["month"]))
        tally.add(0, _number(values["unseen_bytes"]))
        at = values["at"]
        if not isinstance(at, int | float) or not 0 <= at < MAX_BYTES:
            raise SchemaMismatch(f"instant out of range: {at!r}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SchemaMismatch(f"no tally of bytes: {error!r}") from error
    return tally, float(at)


def _count(values: Any) -> Count:
    label = values["label"]
    if not isinstance(label, str) or len(label) > 16:
        raise SchemaMismatch("no period's label")
    return Count(label, _number(values["sent"]), _number(values["received"]))


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_BYTES:
        raise SchemaMismatch(f"no number of bytes: {value!r}")
    return value
