"""The settings of a node that is a guest on somebody's machine.

Refuses to know how the machine is watched.
"""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from neuroswarm.config.section import Section, split_list

MINUTES_A_DAY = 24 * 60

_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)")


def parse_hours(text: str) -> tuple[int, int]:
    """First minute of the day, and the first one after, of a text like `22:00-07:00`.

    The end is before the beginning where the night lies between.

    Raises:
        ValueError: it is no such text, or no time at all.
    """
    found = _HOURS.fullmatch(text.strip())
    first, last = (0, 0) if found is None else _minutes(*map(int, found.groups()))
    if found is None or last > MINUTES_A_DAY:
        raise ValueError(f"{text!r} are no hours (write them like 22:00-07:00)")
    if first == last:
        raise ValueError(f"{text!r} ends when it begins (the whole day is 00:00-24:00)")
    return first, last


def _minutes(from_hour: int, from_minute: int, to_hour: int, to_minute: int) -> tuple[int, int]:
    return 60 * from_hour + from_minute, 60 * to_hour + to_minute


class GuestConfig(Section):
    """When a node trains on a machine that others use, and how much of it it takes."""

    prefix = "guest."

    only_on_mains: bool = False
    """Train only while the machine is not running on its battery."""
    only_when_idle: bool = False
    """Train only while other programs leave the processors alone."""
    idle_below: float = Field(default=0.25, gt=0, le=1)
    """Share of the processors' time up to which others leave them alone."""
    hours: tuple[str, ...] = Field(default=(), max_length=24)
    """Local time in which to train, like `22:00-07:00`; one string may hold several, with commas
    between them. Unset: at any time."""
    settle_s: float = Field(default=60.0, ge=0, le=86400)
    """Seconds for which mains and idleness must last before the node trains again."""
    cpu_share: float = Field(default=1.0, ge=0.05, le=1)
    """Share of the time in which to compute; between inner steps the node rests for the others."""
    niceness: int = Field(default=0, ge=0, le=19)
    """How far the whole process stands back for other programs, as `nice` does."""

    @field_validator("hours", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return split_list(value)

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, hours: tuple[str, ...]) -> tuple[str, ...]:
        for text in hours:
            parse_hours(text)
        return hours

    def allows(self, minute: int) -> bool:
        """Whether to train in this minute of the local day, 0 to 1439."""
        return not self.hours or any(_holds(*parse_hours(text), minute) for text in self.hours)


def _holds(first: int, last: int, minute: int) -> bool:
    if first < last:
        return first <= minute < last
    return minute >= first or minute < last
