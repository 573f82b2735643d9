"""Inner products and sums with the same bits on every machine, thread count and vector width.

Knows arithmetic; refuses to know what the numbers mean.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from neuroswarm.codecs.payload import Payload

CHUNK_CODES = 16384
"""Codes of each payload whose products are taken at once (64 blocks of 256); part of the order
of summation: never change it."""

CHUNK_VALUES = 32768
"""Values worked on at once: fits a second-level cache, and torch starts no threads for them."""


def gram(payloads: Sequence[Payload]) -> Tensor:
    """Inner products of decoded payloads, exact up to the scales.

    Products of codes summed over a block are integers below 2^24, so any order of a float32
    matrix product gives the same; only the sum over blocks has an order, and it is fixed.

    Args:
        payloads: One per peer, of one fragment: equal shapes.

    Returns:
        float64, shape [P, P], symmetric to the last bit.

    Cost: O(P^2 N) time, O(P^2 + P chunk) memory.
    """
    num_peers = len(payloads)
    num_blocks = payloads[0].num_blocks
    partial = []
    step = max(1, CHUNK_CODES // payloads[0].block)
    for start in range(0, num_blocks, step):
        stop = min(start + step, num_blocks)
        codes = torch.stack([payload.block_codes(start, stop) for payload in payloads], dim=1)
        codes = codes.to(torch.float32)
        dots = torch.bmm(codes, codes.transpose(1, 2)).to(torch.float64)
        scales = torch.stack([payload.scales[start:stop] for payload in payloads], dim=1)
        scales = scales.to(torch.float64)
        dots.mul_(scales[:, :, None] * scales[:, None, :])
        partial.append(halving_sum(dots))
    return halving_sum(torch.stack(partial)).view(num_peers, num_peers)


def gram_of_rows(rows_PN: Tensor) -> Tensor:
    """Inner products of plain rows, in float64 by the fixed tree. float64, shape [P, P].

    Raises:
        ValueError: A value is not finite, or so large that squares overflow.

    Cost: O(P^2 N) element-wise; for payloads use `gram`.
    """
    check_rows(rows_PN)
    wide = rows_PN.to(torch.float64)
    num_peers = wide.shape[0]
    result = torch.zeros(num_peers, num_peers, dtype=torch.float64)
    for i in range(num_peers):
        for k in range(i + 1):
            result[i, k] = result[k, i] = halving_sum(wide[i] * wide[k])
    if not bool(torch.isfinite(result).all()):
        raise ValueError("rows are too large: their squares overflow")
    return result


def check_rows(rows_PN: Tensor) -> None:
    """ValueError unless there are rows of values that are all finite."""
    if rows_PN.ndim != 2 or 0 in rows_PN.shape:
        raise ValueError(f"rows: shape {tuple(rows_PN.shape)} (needs two dimensions, not empty)")
    if not bool(torch.isfinite(rows_PN).all()):
        raise ValueError("rows are not finite")


def combine_rows(rows_PN: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Sum of plain rows times their coefficients, in row order. Shape [N], a new tensor."""
    return ordered_sum([row * share for row, share in zip(rows_PN, coefficients, strict=True)])


def summed_gram(gram_PP: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Gram matrix of sums of rows, from that of the rows.

    Args:
        gram_PP: Inner products of the rows, float64, shape [P, P].
        groups: The rows of each sum.

    Returns:
        float64, shape [G, G] for G groups, a new tensor.

    Cost: O(P G (P + G)) element-wise.
    """
    num_rows = gram_PP.shape[0]
    member = torch.zeros(num_rows, len(groups), dtype=torch.float64)
    for g, group in enumerate(groups):
        for row in group:
            member[row, g] += 1.0
    half = torch.zeros(len(groups), num_rows, dtype=torch.float64)
    for row in range(num_rows):
        half += member[row][:, None] * gram_PP[row]
    result = torch.zeros(len(groups), len(groups), dtype=torch.float64)
    for row in range(num_rows):
        result += half[:, row][:, None] * member[row]
    return result


def norm(values_N: Tensor) -> float:
    """Euclidean norm, squares summed in float64 by the fixed tree."""
    partial = [
        halving_sum(values_N[start : start + CHUNK_VALUES].to(torch.float64).square())
        for start in range(0, values_N.numel(), CHUNK_VALUES)
    ]
    return math.sqrt(float(halving_sum(torch.stack(partial))))


def halving_sum(terms: Tensor) -> Tensor:
    """Sum over the first dimension by adding its second half to its first until one is left.

    The order depends on the length alone, so the result does not depend on how the machine
    vectorises. Shape [K, ...] gives [...]; K >= 1; the input is not written.
    """
    while terms.shape[0] > 1:
        half = (terms.shape[0] + 1) // 2
        rest = terms.shape[0] - half
        folded = terms[:half].clone()
        folded[:rest] += terms[half:]
        terms = folded
    return terms[0]


def ordered_sum(terms: Sequence[Tensor]) -> Tensor:
    """Sum of equal shapes, first to last; a new tensor."""
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total
