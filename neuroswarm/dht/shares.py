"""Who holds how many places of a table, who holds most of them, and which of a holder's ends first.

Every question and change takes O(log n) time: tables are full just when somebody floods them, and
what is looked through for each datagram then stops the loop. Refuses to know what is in a place.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from neuroswarm.values import NodeId

Place: TypeAlias = tuple[bytes, NodeId]
"""A key, and a publisher under it."""

_SLACK = 16
"""Entries of the heap that may be of no use, beside as many as there are places."""


class Ends:
    """Places by when they end."""

    def __init__(self) -> None:
        self._ends: dict[Place, float] = {}
        self._heap: list[tuple[float, Place]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, place: Place, end: float) -> None:
        """Note when a place ends, an instant in any one measure; for a known place, anew."""
        self._ends[place] = end
        heapq.heappush(self._heap, (end, place))
        if len(self._heap) > 2 * len(self._ends) + _SLACK:
            self._heap = [(end, place) for place, end in self._ends.items()]
            heapq.heapify(self._heap)

    def discard(self, place: Place) -> None:
        """Forget a place."""
        self._ends.pop(place, None)

    def first(self) -> tuple[float, Place] | None:
        """When the first one ends, and which it is; None if there is none."""
        while self._heap and self._ends.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # forgotten, or its end was put off
        return self._heap[0] if self._heap else None


class Shares:
    """Places by holder."""

    def __init__(self) -> None:
        self._held: dict[str, Ends] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._held)

    def count(self, holder: str) -> int:
        """Places that one holds."""
        return len(self._held.get(holder, ()))

    def add(self, holder: str, place: Place, end: float) -> None:
        """Give a place, which nobody holds, to a holder."""
        ends = self._held.setdefault(holder, Ends())
        self._uncount(holder, len(ends))
        ends.add(place, end)
        self._count(holder, len(ends))

    def remove(self, holder: str, place: Place) -> None:
        """Take a place from its holder."""
        ends = self._held[holder]
        self._uncount(holder, len(ends))
        ends.discard(place)
        if len(ends):
            self._count(holder, len(ends))
        else:
            del self._held[holder]
        while self._most and self._most not in self._by_count:
            self._most -= 1

    def first_of_most(self) -> tuple[int, Place]:
        """How many places a holder of most has, and which of them ends first; there must be one."""
        holder = next(iter(self._by_count[self._most]))
        first = self._held[holder].first()
        assert first is not None, "who holds nothing is not counted"
        return self._most, first[1]

    def _count(self, holder: str, num: int) -> None:
        self._by_count.setdefault(num, {})[holder] = None
        self._most = max(self._most, num)

    def _uncount(self, holder: str, num: int) -> None:
        if num:
            del self._by_count[num][holder]
            if not self._by_count[num]:
                del self._by_count[num]
