"""Distances and centres of rows that are known by their Gram matrix alone.

Small float64 arrays in numpy: element-wise operations and a fixed tree of additions, so that
every machine gets the same bits. Refuses to know which rule asks.

Legend: P contributing peers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def tree_sum(terms: Matrix) -> Matrix:
    """Sum over the first dimension by adding its second half to its first until one is left.

    As `exact.halving_sum`. Shape [K, ...] gives [...]; K >= 1; the input is not written.
    """
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        folded = terms[:half].copy()
        folded[: len(terms) - half] += terms[half:]
        terms = folded
    result: Matrix = terms[0]
    return result


def distances_to(gram_PP: Matrix, coefficients_P: Matrix) -> Matrix:
    """Distance of each row to the sum of the rows times their coefficients. Shape [P]."""
    products = tree_sum(gram_PP * coefficients_P[:, None])
    square = tree_sum(products * coefficients_P)
    squares = (gram_PP.diagonal() - 2.0 * products) + square
    result: Matrix = np.sqrt(np.maximum(squares, 0.0))
    return result


def recentred(gram_PP: Tensor, row: int) -> Matrix:
    """The Gram matrix with that row as the origin; symmetric to the last bit. Shape [P, P].

    Rows that lie close together far from the origin keep their distances, which would be lost
    in the differences of large squares otherwise.
    """
    gram: Matrix = gram_PP.numpy()
    to_row = gram[row]
    result: Matrix = (gram + gram[row, row]) - (to_row[:, None] + to_row[None, :])
    return result


def central_row(gram_PP: Tensor) -> tuple[int, float]:
    """The row with the smallest ball around it that holds more than half of the rows.

    With fewer than half of the rows hostile the ball of any honest row that reaches all honest
    ones holds more than half, so the radius is at most the honest rows' diameter; and the ball
    found holds an honest row. So the row is within one honest diameter of an honest row.

    Returns:
        Its index, the first of equal ones, and the radius: 0 if more than half of the rows are
        equal to it.

    Cost: O(P^2 log P).
    """
    gram = gram_PP.numpy()
    best, best_radius = 0, float("inf")
    for row in range(len(gram)):
        squares = (gram.diagonal() + gram[row, row]) - 2.0 * gram[row]
        squares[row] = 0.0
        radius = float(np.sqrt(max(np.sort(squares)[len(squares) // 2], 0.0)))
        if radius < best_radius:
            best, best_radius = row, radius
    return best, best_radius
