"""Centred clipping: from a point in the middle, a few steps along clipped differences.

Works on Gram matrices; refuses to know where they come from.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from neuroswarm.aggregation.exact import combine_rows, gram_of_rows
from neuroswarm.aggregation.geometry import (
    Matrix,
    central_row,
    distances_to,
    recentred,
    tree_sum,
)
from neuroswarm.aggregation.preparation import check_quorum

NUM_STEPS = 10
"""Steps of a round. From a start within one honest diameter of an honest row, with the radius
below as tau, each step ends where at most f / P tau per step comes from hostile rows."""


def clipping_coefficients(gram_PP: Matrix, tau: float, num_steps: int) -> Matrix:
    """Coefficients of v after L steps of v += mean_i (x_i - v) min(1, tau / |x_i - v|), v_0 = 0.

    Args:
        gram_PP: Inner products about the starting point, float64, shape [P, P].
        tau: Clipping radius, at least 0.
        num_steps: L, at least 1.

    Returns:
        float64, shape [P]; at least 0, the sum at most 1.

    Source: Karimireddy, He, Jaggi 2021, arXiv:2012.10333, algorithm 1.
    """
    num_rows = gram_PP.shape[0]
    coefficients = np.zeros(num_rows)
    for _ in range(num_steps):
        distances = distances_to(gram_PP, coefficients)
        is_near = distances <= tau
        shares = np.where(is_near, 1.0, tau / np.where(is_near, 1.0, distances)) / num_rows
        coefficients = coefficients * (1.0 - tree_sum(shares)) + shares
    return coefficients


def centered_clipping_coefficients(
    gram_PP: Tensor, num_byzantine: int, weights: Sequence[float] | None = None
) -> list[float]:
    """Shares of the rows after 10 steps from the central row.

    v_0 is the row whose ball of more than half of the rows is the smallest
    (`geometry.central_row`), tau the radius of that ball: both follow from the set alone, so
    nothing is carried from round to round and no unit has to be tuned.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        num_byzantine: f; needs 2 f < P. Does not change the result.
        weights: Not used: equal votes.

    Returns:
        P shares of at least 0 that add up to 1.

    Raises:
        QuorumError: P is too small for f.

    Breakdown: 1/2. The start is within one honest diameter of an honest row; after that f
    hostile rows move v by at most f tau / P a step, and honest ones pull it back.

    Cost: O(P^2) a step and O(P^2 log P) for the start.

    Source: Karimireddy, He, Jaggi 2021, arXiv:2012.10333, algorithm 1. Differs: v_0 is not the
        last round's result and tau is not a constant, see above.
    """
    num_rows = gram_PP.shape[0]
    check_quorum("centered clipping", num_rows, num_byzantine, 2 * num_byzantine + 1)
    row, radius = central_row(gram_PP)
    shares = clipping_coefficients(recentred(gram_PP, row), radius, NUM_STEPS)
    shares[row] += 1.0 - float(tree_sum(shares))
    return [max(float(share), 0.0) for share in shares]


def centered_clipping(rows_PN: Tensor, tau: float, num_steps: int = 1) -> Tensor:
    """Centred clipping of plain rows from v_0 = 0.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written. For another v_0
            subtract it before and add it after.
        tau: Clipping radius, above 0.
        num_steps: L, at least 1.

    Returns:
        Shape [N], dtype of the input.

    Raises:
        ValueError: A value is not finite, or a number is out of range.

    Source: see `clipping_coefficients`.
    """
    if not 0 < tau < float("inf") or num_steps < 1:
        raise ValueError(f"tau {tau} (above 0), steps {num_steps} (at least 1)")
    found = clipping_coefficients(gram_of_rows(rows_PN).numpy(), tau, num_steps)
    return combine_rows(rows_PN, found.tolist())
