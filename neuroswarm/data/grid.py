"""Windows of ranges, by number: side by side, every Mth of them, or at every position.

Knows positions; refuses to know who reads what, and of tokens.

T = tokens that a window predicts; it holds one more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from neuroswarm.data.tokens import Ranges

Spans = tuple[tuple[int, int], ...]
"""Half-open spans of window numbers, ascending, not touching."""


class Grid:
    """Windows side by side in each range, numbered 0 to `count` - 1 through all of them.

    How many a range has does not depend on the phase at which the first one begins: a range of L
    tokens has floor(L / T) - 1, at least one.

    Args:
        ranges: Each at least T + 1 tokens long.
        context: T.
    """

    def __init__(self, ranges: Ranges, context: int) -> None:
        self._ranges = ranges
        self._context = context
        self._before = [0, *accumulate(max(1, (b - a) // context - 1) for a, b in ranges)]
        self.count = self._before[-1]

    def count_of(self, index: int) -> int:
        """Windows of range number `index`."""
        return self._before[index + 1] - self._before[index]

    def find(self, number: int) -> tuple[int, int]:
        """The range in which a window is, and its number there."""
        index = bisect_right(self._before, number) - 1
        return index, number - self._before[index]

    def start(self, index: int, within: int, phase: int) -> int:
        """The first token of window `within` of range `index`; any `phase` from 0 on is legal."""
        start, end = self._ranges[index]
        slack = end - start - 1 - self.count_of(index) * self._context
        return start + phase % (slack + 1) + within * self._context

    def spans(self, held: Ranges) -> Spans:
        """The numbers of the windows of some of the ranges."""
        if held == self._ranges:
            return ((0, self.count),)
        wanted = set(held)
        spans: list[tuple[int, int]] = []
        for index, range_ in enumerate(self._ranges):
            if range_ not in wanted:
                continue
            start, end = self._before[index], self._before[index + 1]
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            spans.append((start, end))
        return tuple(spans)


class Part:
    """The numbers slot, slot + M, slot + 2 M, ... that lie in some spans; ranks 0 to `count` - 1.

    Args:
        spans: Half-open, ascending.
        slot: 0 to `num_slots` - 1.
        num_slots: M.
    """

    def __init__(self, spans: Sequence[tuple[int, int]], slot: int, num_slots: int) -> None:
        self._num_slots = num_slots
        self._firsts = [start + (slot - start) % num_slots for start, _ in spans]
        counts = (
            max(0, -(-(end - first) // num_slots))
            for first, (_, end) in zip(self._firsts, spans, strict=True)
        )
        self._before = [0, *accumulate(counts)]
        self.count = self._before[-1]

    def position(self, rank: int) -> int:
        """The number of that rank."""
        index = bisect_right(self._before, rank) - 1
        return self._firsts[index] + (rank - self._before[index]) * self._num_slots


class Starts:
    """All positions at which a window may start, numbered 0 to `count` - 1.

    Args:
        ranges: Each at least a window long.
        window: Tokens in a window.
    """

    def __init__(self, ranges: Ranges, window: int) -> None:
        self._ranges = ranges
        self._before = [0, *accumulate(end - start - window + 1 for start, end in ranges)]
        self.count = self._before[-1]

    def position(self, rank: int) -> int:
        """The position of that number."""
        index = bisect_right(self._before, rank) - 1
        return self._ranges[index][0] + rank - self._before[index]
