"""Sorting networks that bring the middle rows of a few tensors to the middle, element by element.

Knows comparisons; refuses to know what is averaged afterwards.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

# 19 comparisons in 6 layers, the fewest for 8 (Knuth, TAOCP 3, 5.3.4); Batcher's needs as many
# comparisons but its pruned form is longer.
_EIGHT = (
    *((0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3)),
    *((4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)),
)


class Comparison(NamedTuple):
    """Order wires `low` and `high`; a side that nobody reads later is not computed."""

    low: int
    high: int
    needs_low: bool
    needs_high: bool


@functools.lru_cache(maxsize=256)
def middle_network(num_rows: int, num_trimmed: int) -> tuple[Comparison, ...]:
    """Comparisons after which wires f to n - f - 1 hold the middle values, in any order.

    Args:
        num_rows: n, at least 1.
        num_trimmed: f, values dropped at each end; needs 2 f < n.

    Source: Batcher 1968 (odd-even merge). Differs: comparisons whose results are not needed,
        or only reorder the middle, are left out.
    """
    unused, middle, live = 0, 1, 2
    wires = [
        middle if num_trimmed <= i < num_rows - num_trimmed else unused for i in range(num_rows)
    ]
    kept = []
    for low, high in reversed(_EIGHT if num_rows == 8 else _batcher(num_rows)):
        pair = (wires[low], wires[high])
        if pair in ((unused, unused), (middle, middle)):
            continue
        kept.append(Comparison(low, high, pair[0] != unused, pair[1] != unused))
        wires[low] = wires[high] = live
    return tuple(reversed(kept))


def middle_rows(rows: list[Tensor], num_trimmed: int, spare: Tensor) -> list[Tensor]:
    """The n - 2 f middle values of each element, as tensors in a fixed but unsorted order.

    Args:
        rows: n tensors of one shape, finite, without negative zeros; OVERWRITTEN.
        num_trimmed: f; needs 2 f < n.
        spare: Another tensor of that shape; overwritten.
    """
    wires = list(rows)
    for low, high, needs_low, needs_high in middle_network(len(rows), num_trimmed):
        a, b = wires[low], wires[high]
        if needs_low and needs_high:
            torch.minimum(a, b, out=spare)
            torch.maximum(a, b, out=b)
            wires[low], spare = spare, a
        elif needs_low:
            torch.minimum(a, b, out=a)
        else:
            torch.maximum(a, b, out=b)
    return wires[num_trimmed : len(rows) - num_trimmed]


def _batcher(num_rows: int) -> list[tuple[int, int]]:
    """Odd-even merge sort for the next power of two, without the wires that do not exist."""
    size = 1
    while size < num_rows:
        size *= 2
    found: list[tuple[int, int]] = []

    def merge(start: int, length: int, step: int) -> None:
        if step * 2 < length:
            merge(start, length, step * 2)
            merge(start + step, length, step * 2)
            found.extend(
                (i, i + step) for i in range(start + step, start + length - step, step * 2)
            )
        else:
            found.append((start, start + step))

    def sort(start: int, length: int) -> None:
        if length > 1:
            sort(start, length // 2)
            sort(start + length // 2, length // 2)
            merge(start, length, 1)

    sort(0, size)
    return [(low, high) for low, high in found if high < num_rows]
