"""Shares of peers in an average.

Legend: P contributing peers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def shares(num_rows: int, weights: Sequence[float] | None) -> list[float]:
    """Weights divided by their sum, in order; equal shares for None.

    Raises:
        ValueError: Not one weight a row, a negative one, or a sum that is 0 or not finite.
    """
    if weights is None:
        return [1.0 / num_rows] * num_rows
    if len(weights) != num_rows or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise ValueError(f"weights: {len(weights)} for {num_rows} contributions, at least 0")
    total = 0.0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]


def mean_coefficients(
    gram_PP: Tensor, num_byzantine: int, weights: Sequence[float] | None = None
) -> list[float]:
    """Shares of the plain mean. Breakdown: 0, one hostile row moves it anywhere.

    Args:
        gram_PP: Only its size counts.
        num_byzantine: Does not change the result.
        weights: Shares of the peers; None for equal ones.

    Raises:
        ValueError: Weights that do not fit.
    """
    return shares(gram_PP.shape[0], weights)
