"""Rules that look at each coordinate alone: mean, median, trimmed mean.

Works on plain rows; for coded contributions see `rule.aggregate`.

Legend: P contributing peers, N flattened parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuroswarm.aggregation.exact import CHUNK_VALUES, check_rows, ordered_sum
from neuroswarm.aggregation.preparation import check_quorum
from neuroswarm.aggregation.sorting import middle_rows


def mean(rows_PN: Tensor) -> Tensor:
    """Average of the rows, added in row order. Withstands no arbitrary row.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.

    Returns:
        Shape [N], dtype of the input.

    Raises:
        ValueError: A value is not finite.

    Breakdown: 0.
    """
    check_rows(rows_PN)
    return ordered_sum(list(rows_PN)) * (1.0 / rows_PN.shape[0])


def median(rows_PN: Tensor) -> Tensor:
    """Middle value of each coordinate; the mean of the two middle ones when P is even.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.

    Returns:
        Shape [N], dtype of the input.

    Raises:
        ValueError: A value is not finite.

    Breakdown: 1/2 in each coordinate; f of P rows with 2 f < P stay within the honest range.

    Source: Yin et al. 2018, arXiv:1803.01498, definition 1.
    """
    return trimmed_mean(rows_PN, max(rows_PN.shape[0] - 1, 0) // 2)


def trimmed_mean(rows_PN: Tensor, num_byzantine: int) -> Tensor:
    """Mean of each coordinate without its f largest and f smallest values.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f, a count per side; needs 2 f < P.

    Returns:
        Shape [N], dtype of the input.

    Raises:
        QuorumError: P is too small for f.
        ValueError: A value is not finite.

    Cost: O(P log^2 P N) element-wise, O(P chunk) memory.

    Breakdown: f of P rows: each coordinate of the result is within the range of the honest
    values.

    Source: Yin et al. 2018, arXiv:1803.01498, definition 2.
        Differs: f is a count, not a share, so that small sets are trimmed too.
    """
    num_rows, num_values = rows_PN.shape
    check_quorum("trimmed mean", num_rows, num_byzantine, 2 * num_byzantine + 1)
    check_rows(rows_PN)
    result = torch.empty(num_values, dtype=rows_PN.dtype)
    share = 1.0 / (num_rows - 2 * num_byzantine)
    for start in range(0, num_values, CHUNK_VALUES):
        stop = min(start + CHUNK_VALUES, num_values)
        # A sum with +0 makes new tensors and turns -0 into +0: which of the two a minimum
        # returns depends on whether the element is in a vector body or in its tail.
        rows = [row[start:stop] + 0.0 for row in rows_PN]
        middle = middle_rows(rows, num_byzantine, torch.empty_like(rows[0]))
        torch.mul(ordered_sum(middle), share, out=result[start:stop])
    return result
