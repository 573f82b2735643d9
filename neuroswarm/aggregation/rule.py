"""One fragment's contributions to one pseudo-gradient, exactly.

Every step is an element-wise operation of IEEE arithmetic in an order that depends on the
shapes alone, and no intermediate that matters is subnormal, so the result does not depend on
the machine, its vector width, the number of threads or the denormal mode.

Legend: P contributing peers, N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neuroswarm.aggregation import exact
from neuroswarm.aggregation.exact import ordered_sum
from neuroswarm.aggregation.krum import krum_choice
from neuroswarm.aggregation.preparation import (
    check_quorum,
    nnm_neighbours,
    norm_factors,
    scaled_gram,
)
from neuroswarm.aggregation.sorting import middle_rows
from neuroswarm.codecs.payload import Payload

METHODS = ("mean", "median", "trimmed_mean", "krum")

_SMALLEST_SCALE = 2.0**-80
"""Scales below are taken as 0: then all sums are multiples of 2^-103, far from subnormal."""


def aggregate(
    payloads: Sequence[Payload],
    weights: Sequence[float] | None = None,
    *,
    method: str,
    num_byzantine: int,
    norm_scaling: str = "down",
    use_nnm: bool = True,
    krum_neighbours: str = "n-f-2",
    max_norm: float | None = None,
    gram_PP: Tensor | None = None,
) -> Tensor:
    """Scale the norms, mix nearest neighbours, apply the rule.

    With f = 0 there is no mixing: every row would become the mean.

    Args:
        payloads: One per peer in node-id order, equal shapes; not written.
        weights: Positive shares of the peers in the mean; None for equal ones. Other rules
            see equal votes.
        method: `mean`, `median`, `trimmed_mean` or `krum`.
        num_byzantine: f. Needs P > 2 f, for Krum P >= 2 f + 3.
        norm_scaling: `none`, `down` or `both`, see `preparation.norm_factors`.
        use_nnm: Mix before the rule.
        krum_neighbours: `n-f-2` or `n-f-1`.
        max_norm: Norm that no contribution may exceed.
        gram_PP: `exact.gram(payloads)` if the caller has it.

    Returns:
        float32, shape [N], no negative zero.

    Raises:
        QuorumError: P is too small for f.
        ValueError: Unknown method, or weights that do not fit.

    Cost: O(P^2 N) element-wise for mixing, O(P N) for mean and Krum; O(P chunk) memory.

    Threads: any; works in chunks for which torch starts no threads of its own.

    Source: the rules' own papers, see their modules; the order (scale, mix, rule) is that of
        Allouah et al. 2023, arXiv:2302.01772.
    """
    if method not in METHODS:
        raise ValueError(f"aggregation method: {method!r} (one of {', '.join(METHODS)})")
    check_quorum(method, len(payloads), num_byzantine, 2 * num_byzantine + 1)
    gram_PP = exact.gram(payloads) if gram_PP is None else gram_PP
    factors = norm_factors(gram_PP, norm_scaling, max_norm)
    gram_PP = scaled_gram(gram_PP, factors)
    neighbours = None
    if use_nnm and num_byzantine > 0:
        neighbours = nnm_neighbours(gram_PP, num_byzantine)
    if method == "krum":
        chosen = krum_choice(_mixed_gram(gram_PP, neighbours), num_byzantine, krum_neighbours)
        votes = [1.0 if i == chosen else 0.0 for i in range(len(payloads))]
        return _combine(payloads, factors, _spread(votes, neighbours))
    if method == "mean" or (method == "trimmed_mean" and num_byzantine == 0):
        votes = _votes(len(payloads), weights if method == "mean" else None)
        return _combine(payloads, factors, _spread(votes, neighbours))
    trim = (len(payloads) - 1) // 2 if method == "median" else num_byzantine
    return _trim(payloads, factors, neighbours, trim)


def _votes(num_peers: int, weights: Sequence[float] | None) -> list[float]:
    """Shares that add up to 1."""
    if weights is None:
        return [1.0 / num_peers] * num_peers
    if len(weights) != num_peers or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise ValueError(f"weights: {len(weights)} for {num_peers} contributions, at least 0")
    total = 0.0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]


def _spread(votes: list[float], neighbours: list[list[int]] | None) -> list[float]:
    """Votes on mixed rows as votes on the rows themselves."""
    if neighbours is None:
        return votes
    shares = [0.0] * len(votes)
    for vote, mixed in zip(votes, neighbours, strict=True):
        for j in mixed:
            shares[j] += vote / len(mixed)
    return shares


def _mixed_gram(gram_PP: Tensor, neighbours: list[list[int]] | None) -> Tensor:
    """Gram matrix of the mixed rows, from that of the rows."""
    if neighbours is None:
        return gram_PP
    share = 1.0 / len(neighbours[0])
    half = torch.stack([ordered_sum([gram_PP[j] for j in mixed]) for mixed in neighbours])
    columns = [ordered_sum([half[:, j] for j in mixed]) for mixed in neighbours]
    return torch.stack(columns, dim=1) * (share * share)


def _effective_scales(payload: Payload, factor: float) -> Tensor:
    """The scales times a factor, rounded once; the very small ones are 0. float32."""
    scales = payload.scales.to(torch.float64) * factor
    return scales.masked_fill_(scales < _SMALLEST_SCALE, 0.0).to(torch.float32)


def _chunks(payloads: Sequence[Payload]) -> list[tuple[int, int]]:
    """Ranges of blocks that are worked on at once."""
    num_blocks, block = payloads[0].num_blocks, payloads[0].block
    step = max(1, exact.CHUNK_VALUES // block)
    return [(start, min(start + step, num_blocks)) for start in range(0, num_blocks, step)]


def _combine(payloads: Sequence[Payload], factors: list[float], votes: list[float]) -> Tensor:
    """Sum of the rows times their factor and vote, in row order. float32, shape [N]."""
    used = [
        (payload, _effective_scales(payload, factor * vote))
        for payload, factor, vote in zip(payloads, factors, votes, strict=True)
        if vote > 0
    ]
    result = torch.zeros(payloads[0].num_blocks, payloads[0].block, dtype=torch.float32)
    for start, stop in _chunks(payloads):
        target = result[start:stop]
        for payload, scales in used:
            codes = payload.block_codes(start, stop).to(torch.float32)
            target += codes.mul_(scales[start:stop, None])
    return result.view(-1)[: payloads[0].num_params]


def _trim(
    payloads: Sequence[Payload],
    factors: list[float],
    neighbours: list[list[int]] | None,
    trim: int,
) -> Tensor:
    """Trimmed mean of the scaled and mixed rows. float32, shape [N].

    Mixed rows are sums, not means: one division at the end serves both averages and keeps
    every sum a multiple of the smallest scale's last bit.
    """
    scales = [_effective_scales(p, factor) for p, factor in zip(payloads, factors, strict=True)]
    mixed_rows = 1 if neighbours is None else len(neighbours[0])
    share = 1.0 / (mixed_rows * (len(payloads) - 2 * trim))
    result = torch.empty(payloads[0].num_blocks, payloads[0].block, dtype=torch.float32)
    for start, stop in _chunks(payloads):
        rows = [
            # + 0.0 because a code times a scale of 0 may be -0, which minimum orders at random.
            p.block_codes(start, stop).to(torch.float32).mul_(s[start:stop, None]).add_(0.0)
            for p, s in zip(payloads, scales, strict=True)
        ]
        if neighbours is not None:
            rows = [ordered_sum([rows[j] for j in mixed]) for mixed in neighbours]
        middle = middle_rows(rows, trim, torch.empty_like(rows[0]))
        torch.mul(ordered_sum(middle), share, out=result[start:stop])
    return result.view(-1)[: payloads[0].num_params]
