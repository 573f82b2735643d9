"""What a node may still do with its data caps. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from neuroswarm.metering.tally import Count, Tally

LAST_SHARE = 0.02
"""Share of a cap that is left when the node falls silent: for saying that it leaves, and for what
comes in all the same."""


class Allowance(enum.Enum):
    """How a node takes part."""

    OPEN = "open"
    """As without caps."""
    SPARING = "sparing"
    """It follows the rounds and votes, and contributes and gives nothing."""
    SILENT = "silent"
    """It has left the swarm for the rest of the period, and trains on."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The caps on a day and on a month, bytes in both directions; None without one."""

    day_bytes: int | None = None
    month_bytes: int | None = None
    reserve: float = 0.1
    """Share of each that is kept for following rounds."""

    @property
    def are_set(self) -> bool:
        """Whether there is any."""
        return bool(self._set(Tally()))

    @property
    def smallest(self) -> int | None:
        """The smaller of the two."""
        return min((cap for _, cap in self._set(Tally())), default=None)

    def judge(self, tally: Tally) -> Allowance:
        """What is allowed now."""
        found = self._set(tally)
        if any(count.total >= cap * (1 - LAST_SHARE) for count, cap in found):
            return Allowance.SILENT
        return Allowance.SPARING if self.room(tally) == 0 else Allowance.OPEN

    def room(self, tally: Tally) -> int | None:
        """Bytes left before the reserve; None without a cap."""
        left = (int(cap * (1 - self.reserve)) - count.total for count, cap in self._set(tally))
        smallest = min(left, default=None)
        return None if smallest is None else max(0, smallest)

    def _set(self, tally: Tally) -> list[tuple[Count, int]]:
        pairs = ((tally.day, self.day_bytes), (tally.month, self.month_bytes))
        return [(count, cap) for count, cap in pairs if cap is not None]
