"""Bucketing: contributions averaged in small random groups before the rule.

Makes honest rows more alike on disjoint data, at the price of a larger hostile share. Knows
counts and seeds; the averaging of coded contributions is in `rule`.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuroswarm.aggregation.exact import check_rows, ordered_sum

_WORD_BYTES = 8
_NUM_WORDS = 2 ** (8 * _WORD_BYTES)


def random_order(count: int, seed: bytes) -> list[int]:
    """A permutation of 0 to `count` - 1, every one equally likely, the same on every machine.

    Fisher-Yates from the last place down. Numbers below a bound are 8-byte words of
    SHA-256(seed, counter); words in the last incomplete multiple of the bound are skipped, so
    that no remainder is more likely than another.

    Args:
        count: At least 0.
        seed: What all peers hold alike: the digest of the state and the agreed set.
    """
    words = _words(seed)
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        bound = last + 1
        word = words()
        while word >= _NUM_WORDS - _NUM_WORDS % bound:
            word = words()
        chosen = word % bound
        order[last], order[chosen] = order[chosen], order[last]
    return order


def make_buckets(order: Sequence[int], size: int) -> list[list[int]]:
    """Consecutive groups of `size`, each ascending; the last may be shorter."""
    if size < 1:
        raise ValueError(f"bucket size: {size} (at least 1)")
    return [sorted(order[start : start + size]) for start in range(0, len(order), size)]


def choose_bucket_size(
    num_rows: int, num_byzantine: int, asked: int, max_byzantine: Callable[[int], int]
) -> int:
    """The largest size up to `asked` with which the rule still bears f hostile buckets.

    f hostile rows spoil at most f of the ceil(P / size) buckets.

    Args:
        num_rows: P.
        num_byzantine: f.
        asked: The rules' size.
        max_byzantine: Largest f of the rule by number of rows.

    Returns:
        1 to `asked`.

    Source: Karimireddy, He, Jaggi 2022, arXiv:2006.09365, section 4 (size at most the
        breakdown point over the hostile share). Differs: by exact counts.
    """
    for size in range(min(asked, num_rows), 1, -1):
        if max_byzantine(-(-num_rows // size)) >= num_byzantine:
            return size
    return 1


def bucketing(rows_PN: Tensor, size: int, order: Sequence[int]) -> Tensor:
    """Means of consecutive groups of the rows in that order.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        size: Rows in a group, at least 1.
        order: A permutation of 0 to P - 1, e.g. `random_order`.

    Returns:
        Shape [ceil(P / size), N], dtype of the input.

    Raises:
        ValueError: A value is not finite, or `order` is no permutation.

    Breakdown: that of the rule after it on ceil(P / size) rows with the same f.

    Source: Karimireddy, He, Jaggi 2022, arXiv:2006.09365, algorithm 1. Differs: the last
        group may be smaller.
    """
    check_rows(rows_PN)
    if sorted(order) != list(range(rows_PN.shape[0])):
        raise ValueError(f"order is no permutation of {rows_PN.shape[0]} rows")
    return torch.stack(
        [
            ordered_sum([rows_PN[i] for i in bucket]) * (1.0 / len(bucket))
            for bucket in make_buckets(order, size)
        ]
    )


def _words(seed: bytes) -> Callable[[], int]:
    """A stream of 8-byte numbers from a seed."""
    stream: list[int] = []
    counter = 0

    def following() -> int:
        nonlocal counter, stream
        if not stream:
            block = hashlib.sha256(
                b"neuroswarm v1 order\0" + counter.to_bytes(8, "little") + seed
            ).digest()
            counter += 1
            stream = [
                int.from_bytes(block[k : k + _WORD_BYTES], "little")
                for k in range(0, len(block), _WORD_BYTES)
            ]
        return stream.pop(0)

    return following
