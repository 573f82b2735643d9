"""What is done to contributions before a rule: norms made alike, nearest neighbours mixed.

Works on Gram matrices; refuses to know the rule that follows.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neuroswarm.aggregation.exact import gram_of_rows, ordered_sum
from neuroswarm.errors import QuorumError

MAX_RELATIVE_NORM = 2.0
"""Lower-median norms that a contribution may be long before `down` shortens it."""

NORM_SCALINGS = ("none", "down", "both", "clip")


def lower_median(values: list[float]) -> float:
    """The middle value, the lower of the two middle ones of an even count."""
    return sorted(values)[(len(values) - 1) // 2]


def norms(gram_PP: Tensor) -> list[float]:
    """Euclidean norm of each row of a Gram matrix."""
    return [math.sqrt(max(square, 0.0)) for square in gram_PP.diagonal().tolist()]


def norm_factors(
    gram_PP: Tensor, mode: str, max_norm: float | None = None, num_byzantine: int = 0
) -> list[float]:
    """What each row is multiplied by so that no norm stands out.

    Args:
        gram_PP: Inner products, float64, shape [P, P].
        mode: `down` shortens rows above twice the lower-median norm to that; `both` gives
            every row the lower-median norm; `clip` shortens the floor(2 f (P - f) / P)
            longest to the next norm; `none` leaves them.
        max_norm: Norm that no row may exceed in any mode; None for no such bound.
        num_byzantine: f, for `clip`; needs 2 f < P.

    Returns:
        P factors; 1.0 where a row is left alone, 0.0 for a zero row in mode `both`.

    Raises:
        ValueError: Another mode.

    Source: `clip` is the adaptive robust clipping of Allouah et al. 2024, arXiv:2405.14432,
        algorithm 2. `down` and `both` bound norms by the set's own too. Differs: their bound
        is (twice) the lower median, whatever f, so that honest contributions keep theirs.
    """
    if mode not in NORM_SCALINGS:
        raise ValueError(f"norm scaling: {mode!r} (one of {', '.join(NORM_SCALINGS)})")
    lengths = norms(gram_PP)
    middle = lower_median(lengths)
    if mode == "clip":
        num_clipped = 2 * num_byzantine * (len(lengths) - num_byzantine) // len(lengths)
        next_length = sorted(lengths, reverse=True)[num_clipped]
    factors = []
    for length in lengths:
        target = length
        if mode == "both":
            target = middle
        elif mode == "down":
            target = min(length, MAX_RELATIVE_NORM * middle)
        elif mode == "clip":
            target = min(length, next_length)
        if max_norm is not None:
            target = min(target, max_norm)
        if target == length:
            factors.append(1.0)
        else:
            factors.append(target / length if length > 0 else 0.0)
    return factors


def scaled_gram(gram_PP: Tensor, factors: list[float]) -> Tensor:
    """The Gram matrix after row i was multiplied by `factors[i]`. A new tensor."""
    scale = torch.tensor(factors, dtype=torch.float64)
    return gram_PP * (scale[:, None] * scale[None, :])


def squared_distances(gram_PP: Tensor) -> Tensor:
    """Squared Euclidean distances between rows, at least 0, exactly 0 to itself. [P, P]."""
    squares = gram_PP.diagonal()
    distances = (squares[:, None] + squares[None, :]) - gram_PP * 2.0
    return distances.clamp_(min=0.0).fill_diagonal_(0.0)


def nnm_neighbours(gram_PP: Tensor, num_byzantine: int) -> list[list[int]]:
    """For each row the rows that nearest-neighbour mixing averages, ascending.

    Args:
        gram_PP: Inner products after norm scaling, float64, shape [P, P].
        num_byzantine: f; needs 2 f < P.

    Returns:
        P lists of P - f row indices: the row itself and its nearest, ties by row order.

    Raises:
        QuorumError: P is too small for f.

    Source: Allouah et al. 2023, arXiv:2302.01772, Algorithm 2.
        Differs: ties break by row order, so that every peer mixes the same rows.
    """
    num_rows = gram_PP.shape[0]
    check_quorum("NNM", num_rows, num_byzantine, 2 * num_byzantine + 1)
    distances = squared_distances(gram_PP).fill_diagonal_(-1.0)
    order = torch.sort(distances, dim=1, stable=True).indices[:, : num_rows - num_byzantine]
    return [sorted(row) for row in order.tolist()]


def clip_norms(rows_PN: Tensor, max_norm: float) -> Tensor:
    """Rows longer than `max_norm` shortened to it.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        max_norm: Euclidean norm, at least 0.

    Returns:
        Shape and dtype of the input.

    Raises:
        ValueError: A value is not finite, or `max_norm` is negative.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm: {max_norm} (at least 0)")
    factors = norm_factors(gram_of_rows(rows_PN), "none", max_norm)
    return torch.stack([row * factor for row, factor in zip(rows_PN, factors, strict=True)])


def adaptive_clipping(rows_PN: Tensor, num_byzantine: int) -> Tensor:
    """The floor(2 f (P - f) / P) longest rows shortened to the next norm.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f; needs 2 f < P.

    Returns:
        Shape and dtype of the input.

    Raises:
        QuorumError: P is too small for f.
        ValueError: A value is not finite.

    Source: Allouah et al. 2024, arXiv:2405.14432, algorithm 2 (ARC).
    """
    check_quorum("clipping", rows_PN.shape[0], num_byzantine, 2 * num_byzantine + 1)
    factors = norm_factors(gram_of_rows(rows_PN), "clip", num_byzantine=num_byzantine)
    return torch.stack([row * factor for row, factor in zip(rows_PN, factors, strict=True)])


def nnm(rows_PN: Tensor, num_byzantine: int) -> Tensor:
    """Replace each row by the mean of its P - f nearest rows, itself included.

    Args:
        rows_PN: Shape [P, N], float32 or float64, finite; is not written.
        num_byzantine: f; needs 2 f < P.

    Returns:
        Shape and dtype of the input.

    Raises:
        QuorumError: P is too small for f.

    Source: Allouah et al. 2023, arXiv:2302.01772. Differs: ties break by row order.
    """
    neighbours = nnm_neighbours(gram_of_rows(rows_PN), num_byzantine)
    share = 1.0 / (rows_PN.shape[0] - num_byzantine)
    return torch.stack([ordered_sum([rows_PN[j] for j in row]) * share for row in neighbours])


def check_quorum(rule: str, num_rows: int, num_byzantine: int, needed: int) -> None:
    """QuorumError unless `num_rows` suffice; ValueError if f is negative."""
    if num_byzantine < 0:
        raise ValueError(f"num_byzantine: {num_byzantine} (at least 0)")
    if num_rows < max(needed, 1):
        raise QuorumError(
            f"too few contributions for {rule} with f = {num_byzantine}: "
            f"{num_rows} (needs {max(needed, 1)})"
        )
