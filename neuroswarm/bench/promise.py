"""What a benchmark promises, whether it was held, and how that is shown and written.

Knows nothing of what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that the benchmark checks."""

    name: str
    holds: bool
    said: str
    """What was found and what was promised, in one line."""

    @property
    def line(self) -> str:
        """What is shown of it."""
        return f"{'holds' if self.holds else 'BROKEN'}: {self.said}"


def tell(promises: Iterable[Promise], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Show a line for each promise; returns them as JSON values."""
    told = []
    for promise in promises:
        say(promise.line)
        told.append(asdict(promise))
    return told
