"""Krum and multi-Krum: the contributions whose nearest neighbours are closest.

Works on Gram matrices; refuses to know where they come from.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neuroswarm.aggregation.exact import combine_rows, gram_of_rows, ordered_sum
from neuroswarm.aggregation.preparation import check_quorum, squared_distances
from neuroswarm.aggregation.votes import shares

NEIGHBOURS = ("n-f-2", "n-f-1")


def count_neighbours(num_rows: int, num_byzantine: int, convention: str) -> int:
    """Neighbours in a score: P - f - 2 as in the paper, or P - f - 1 as in byzfl.

    Raises:
        ValueError: Another convention.
        QuorumError: P is below 2 f + 3 (`n-f-2`), or below 2 f + 1 or 2 (`n-f-1`).
    """
    if convention not in NEIGHBOURS:
        raise ValueError(f"krum neighbours: {convention!r} (one of {', '.join(NEIGHBOURS)})")
    if convention == "n-f-2":
        check_quorum("krum", num_rows, num_byzantine, 2 * num_byzantine + 3)
        return num_rows - num_byzantine - 2
    check_quorum("krum", num_rows, num_byzantine, max(2 * num_byzantine + 1, 2))
    return num_rows - num_byzantine - 1


def krum_scores(gram_PP: Tensor, num_neighbours: int) -> Tensor:
    """Sum of squared distances of each row to its nearest others.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        num_neighbours: How many others; 1 to P - 1.

    Returns:
        float64, shape [P]; distances are added from the nearest on.

    Source: Blanchard et al. 2017, arXiv:1703.02757, section 4.
    """
    if not 1 <= num_neighbours < gram_PP.shape[0]:
        raise ValueError(f"neighbours: {num_neighbours} (1 to {gram_PP.shape[0] - 1})")
    distances = squared_distances(gram_PP).fill_diagonal_(float("inf"))
    nearest = torch.sort(distances, dim=1).values
    return ordered_sum([nearest[:, k] for k in range(num_neighbours)])


def krum_choice(gram_PP: Tensor, num_byzantine: int, neighbours: str = "n-f-2") -> int:
    """Index of the row with the lowest score; the first of equal ones.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        num_byzantine: f.
        neighbours: `n-f-2`, the paper's, needs P >= 2 f + 3; `n-f-1`, byzfl's, P >= 2 f + 1.

    Raises:
        QuorumError: P is too small for f.

    Breakdown: f of P rows with P >= 2 f + 3; the row chosen may be f hostile rows' own when
    they hide among honest ones, so its error does not shrink with more peers.

    Source: Blanchard et al. 2017, arXiv:1703.02757, section 4.
        Differs: ties break by row order; the number of neighbours may be byzfl's.
    """
    count = count_neighbours(gram_PP.shape[0], num_byzantine, neighbours)
    scores = krum_scores(gram_PP, count).tolist()
    return scores.index(min(scores))


def krum_coefficients(
    gram_PP: Tensor,
    num_byzantine: int,
    weights: Sequence[float] | None = None,
    *,
    neighbours: str = "n-f-2",
) -> list[float]:
    """1 for the row that `krum_choice` picks, 0 for the others; weights are not used."""
    chosen = krum_choice(gram_PP, num_byzantine, neighbours)
    return [1.0 if i == chosen else 0.0 for i in range(gram_PP.shape[0])]


def multi_krum_choice(gram_PP: Tensor, num_byzantine: int, neighbours: str = "n-f-2") -> list[int]:
    """Indices of the P - f rows with the lowest scores, ascending; ties by row order.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        num_byzantine: f.
        neighbours: `n-f-2`, the paper's, needs P >= 2 f + 3; `n-f-1`, byzfl's, P >= 2 f + 1.

    Raises:
        QuorumError: P is too small for f.

    Breakdown: f of P rows with P >= 2 f + 3.

    Source: Blanchard et al. 2017, arXiv:1703.02757, section 4 (m-Krum).
        Differs: m = P - f rows as in byzfl, all that may be honest, instead of a free m.
    """
    count = count_neighbours(gram_PP.shape[0], num_byzantine, neighbours)
    scores = krum_scores(gram_PP, count).tolist()
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    return sorted(order[: len(scores) - num_byzantine])


def multi_krum_coefficients(
    gram_PP: Tensor,
    num_byzantine: int,
    weights: Sequence[float] | None = None,
    *,
    neighbours: str = "n-f-2",
) -> list[float]:
    """Shares of the rows that `multi_krum_choice` picks, by weight; 0 for the others.

    Raises:
        QuorumError: P is too small for f.
        ValueError: Weights that do not fit.
    """
    chosen = multi_krum_choice(gram_PP, num_byzantine, neighbours)
    if weights is not None:
        shares(gram_PP.shape[0], weights)  # refuses what does not fit
        weights = [weights[i] for i in chosen]
        weights = weights if sum(weights) > 0 else None
    result = [0.0] * gram_PP.shape[0]
    for i, share in zip(chosen, shares(len(chosen), weights), strict=True):
        result[i] = share
    return result


def krum(rows_PN: Tensor, num_byzantine: int, neighbours: str = "n-f-2") -> Tensor:
    """The row that `krum_choice` picks, as a new tensor of shape [N].

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f.
        neighbours: `n-f-2` or `n-f-1`.

    Raises:
        QuorumError: P is too small for f.
    """
    return rows_PN[krum_choice(gram_of_rows(rows_PN), num_byzantine, neighbours)].clone()


def multi_krum(rows_PN: Tensor, num_byzantine: int, neighbours: str = "n-f-2") -> Tensor:
    """Mean of the rows that `multi_krum_choice` picks. Shape [N], dtype of the input.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f.
        neighbours: `n-f-2` or `n-f-1`.

    Raises:
        QuorumError: P is too small for f.
        ValueError: A value is not finite.
    """
    gram_PP = gram_of_rows(rows_PN)
    found = multi_krum_coefficients(gram_PP, num_byzantine, neighbours=neighbours)
    return combine_rows(rows_PN, found)
