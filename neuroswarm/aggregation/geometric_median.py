"""Geometric median: the point with the least sum of distances to the contributions.

Works on Gram matrices; refuses to know where they come from.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from neuroswarm.aggregation.exact import combine_rows, gram_of_rows
from neuroswarm.aggregation.geometry import central_row, distances_to, recentred, tree_sum
from neuroswarm.aggregation.preparation import check_quorum

MAX_ITERATIONS = 1000
TOLERANCE = 1e-10
"""Change of every coefficient below which the iteration ends. The arithmetic is exact, so all
peers end after the same number of steps."""

SMOOTHING = 2.0**-20
"""Least distance, as a share of the radius of the ball that holds more than half of the rows."""


def geometric_median_coefficients(
    gram_PP: Tensor, num_byzantine: int, weights: Sequence[float] | None = None
) -> list[float]:
    """Shares of the rows in their geometric median, by Weiszfeld's iteration.

    z_0 = mean; z_(t+1) = sum_i x_i / d_i divided by sum_i 1 / d_i, with
    d_i = max(|x_i - z_t|, nu), nu = 2^-20 radii of the ball of `central_row`. When more than
    half of the rows are equal, that row is the median. Of two rows it is the mean.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        num_byzantine: f; needs 2 f < P. Does not change the result.
        weights: Not used: shares claimed by hostile peers would lower the breakdown point.

    Returns:
        P shares of at least 0 that add up to 1.

    Raises:
        QuorumError: P is too small for f.

    Breakdown: 1/2; distance to the honest mean at most 2 (P - f) / (P - 2 f) times the largest
    distance of an honest row to it.

    Cost: O(P^2) a step, usually 30 to 200 steps.

    Source: Weiszfeld 1937; Pillutla, Kakade, Harchaoui 2022, arXiv:1912.13445, algorithm 2
        (smoothed). Differs: equal weights; the smoothing follows the set's own distances
        instead of a constant, so that the result does not depend on units; the iteration ends
        at a tolerance of the shares, not after 3 steps.
    """
    num_rows = gram_PP.shape[0]
    check_quorum("geometric median", num_rows, num_byzantine, 2 * num_byzantine + 1)
    row, radius = central_row(gram_PP)
    shares = np.full(num_rows, 1.0 / num_rows)
    if radius == 0.0:
        shares[:] = 0.0
        shares[row] = 1.0
        return [float(share) for share in shares]
    gram = recentred(gram_PP, row)
    for _ in range(MAX_ITERATIONS):
        pulls = 1.0 / np.maximum(distances_to(gram, shares), SMOOTHING * radius)
        following = pulls / tree_sum(pulls)
        moved = float(np.abs(following - shares).max())
        shares = following
        if moved <= TOLERANCE:
            break
    return [float(share) for share in shares]


def geometric_median(rows_PN: Tensor, num_byzantine: int = 0) -> Tensor:
    """Geometric median of plain rows.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f; needs 2 f < P. Does not change the result.

    Returns:
        Shape [N], dtype of the input.

    Raises:
        QuorumError: P is too small for f.
        ValueError: A value is not finite.

    Source: see `geometric_median_coefficients`.
    """
    gram_PP = gram_of_rows(rows_PN)
    return combine_rows(rows_PN, geometric_median_coefficients(gram_PP, num_byzantine))
