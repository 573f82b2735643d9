"""One finding of the doctor: what was looked at, how it is, and what to do.

Refuses to know what is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    """Nothing to do."""
    SKIP = "skip"
    """Not looked at; the finding says why."""
    WARN = "warn"
    """A node runs, but worse than it could, or with something that may go wrong."""
    FAIL = "fail"
    """A node will not run, or will not find the others."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Args:
        check: What was looked at: one or two words, the same in every report.
        level: How bad it is.
        said: What was seen, with values and limits; lower case, no full stop.
        fix: What to do; not empty where the level is warn or fail.
    """

    check: str
    level: Level
    said: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.level in (Level.WARN, Level.FAIL) and not self.fix:
            raise ValueError(f"finding without a fix: {self.check}: {self.said}")

    def __str__(self) -> str:
        line = f"{self.level:<4}  {self.check:<12} {self.said}"
        return f"{line} -> {self.fix}" if self.fix else line


def ok(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.OK, said)


def skip(check: str, why: str) -> Finding:
    """Not looked at."""
    return Finding(check, Level.SKIP, why)


def warn(check: str, said: str, fix: str) -> Finding:
    """Something may go wrong."""
    return Finding(check, Level.WARN, said, fix)


def fail(check: str, said: str, fix: str) -> Finding:
    """A node will not run, or will not find the others."""
    return Finding(check, Level.FAIL, said, fix)


def show_bytes(count: float) -> str:
    """A number of bytes for people: `512 MB`, `21.7 GB`."""
    if count >= 10**9:
        return f"{count / 10**9:.1f} GB"
    return f"{count / 10**6:.0f} MB"
