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
from neuroswarm.aggregation.exact import ordered_sum, summed_gram
from neuroswarm.aggregation.methods import METHODS, VectorRule, find_method, vector_rule
from neuroswarm.aggregation.preparation import (
    check_quorum,
    nnm_neighbours,
    norm_factors,
    scaled_gram,
)
from neuroswarm.aggregation.sorting import middle_rows
from neuroswarm.codecs.payload import Payload
from neuroswarm.config.legality import check_pair
from neuroswarm.hardware import large_tensors

__all__ = ["METHODS", "aggregate"]

_SMALLEST_SCALE = 2.0**-80
"""Scales below are taken as 0: then all sums are multiples of 2^-103, far from subnormal."""

Groups = Sequence[Sequence[int]]
"""Rows that are added up, for each sum."""


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
    buckets: Groups | None = None,
    gram_PP: Tensor | None = None,
) -> Tensor:
    """Scale the norms, average buckets, mix nearest neighbours, apply the rule.

    With f = 0 there is no mixing (every row would become the mean) and the trimmed mean is
    the mean.

    Args:
        payloads: One per peer in node-id order, equal shapes; not written.
        weights: Shares of the peers in the mean and among the survivors of multi-Krum; None
            for equal ones. Other rules see equal votes.
        method: A name of `methods.METHODS`.
        num_byzantine: f. Needs P > 2 f, for Krum P >= 2 f + 3; P counts buckets if there are.
        norm_scaling: `none`, `down`, `both` or `clip`, see `preparation.norm_factors`.
        use_nnm: Mix before the rule.
        krum_neighbours: `n-f-2` or `n-f-1`.
        max_norm: Norm that no contribution may exceed.
        buckets: Each payload in exactly one, see `bucketing`; None for none.
        gram_PP: `exact.gram(payloads)` if the caller has it.

    Returns:
        float32, shape [N], no negative zero.

    Raises:
        QuorumError: P is too small for f.
        ConfigError: The rule cannot follow the payloads' codec.
        ValueError: Unknown method or scaling, weights or buckets that do not fit.

    Cost: O(P^2 N) element-wise for mixing in coordinate-wise rules, else O(P N) and small
        matrices; O(P chunk) memory.

    Threads: any; works in chunks for which torch starts no threads of its own.

    Source: the rules' own papers, see their modules; the order (scale, mix, rule) is that of
        Allouah et al. 2023, arXiv:2302.01772.
    """
    groups = _check(payloads, method, num_byzantine, buckets)
    gram_PP = exact.gram(payloads) if gram_PP is None else gram_PP
    factors = _averaged(norm_factors(gram_PP, norm_scaling, max_norm, num_byzantine), groups)
    gram_PP = scaled_gram(gram_PP, factors)
    gram_PP = gram_PP if buckets is None else summed_gram(gram_PP, groups)
    mixing = nnm_neighbours(gram_PP, num_byzantine) if use_nnm and num_byzantine > 0 else None
    is_mean = method == "trimmed_mean" and num_byzantine == 0
    rule = vector_rule("mean" if is_mean else method, krum_neighbours)
    if rule is None:
        trim = _num_trimmed(method, len(groups), num_byzantine)
        return _trim(payloads, factors, groups, mixing, trim)
    votes = None if weights is None or is_mean else _group_weights(weights, groups)
    return _combine(payloads, factors, _shares(rule, gram_PP, num_byzantine, votes, groups, mixing))


def _check(
    payloads: Sequence[Payload], method: str, num_byzantine: int, buckets: Groups | None
) -> Groups:
    """The rows of each bucket; raises what `aggregate` says."""
    find_method(method)
    check_pair(payloads[0].kind, method)
    groups = _check_buckets(len(payloads), buckets)
    check_quorum(method, len(groups), num_byzantine, 2 * num_byzantine + 1)
    return groups


def _num_trimmed(method: str, num_rows: int, num_byzantine: int) -> int:
    return (num_rows - 1) // 2 if method == "median" else num_byzantine


def _check_buckets(num_peers: int, buckets: Groups | None) -> Groups:
    if buckets is None:
        return [[i] for i in range(num_peers)]
    if sorted(i for bucket in buckets for i in bucket) != list(range(num_peers)):
        raise ValueError(f"buckets do not hold each of {num_peers} contributions once")
    return [bucket for bucket in buckets if bucket]


def _averaged(factors: list[float], groups: Groups) -> list[float]:
    """The factors with which sums over the groups are means."""
    result = list(factors)
    for group in groups:
        for i in group:
            result[i] /= len(group)
    return result


def _group_weights(weights: Sequence[float], groups: Groups) -> list[float]:
    if len(weights) != sum(len(group) for group in groups):
        raise ValueError(f"weights: {len(weights)} (one a contribution)")
    return [sum(weights[i] for i in group) for group in groups]


def _shares(
    rule: VectorRule,
    gram_GG: Tensor,
    num_byzantine: int,
    votes: list[float] | None,
    groups: Groups,
    mixing: Groups | None,
) -> list[float]:
    """The rule's coefficients on groups, or on mixed groups, as coefficients of the rows."""
    if mixing is None:
        shares = rule(gram_GG, num_byzantine, votes)
    else:
        share = 1.0 / len(mixing[0])
        mixed = summed_gram(gram_GG, mixing) * (share * share)
        shares = [0.0] * len(groups)
        for coefficient, row in zip(rule(mixed, num_byzantine, votes), mixing, strict=True):
            for j in row:
                shares[j] += coefficient / len(row)
    result = [0.0] * sum(len(group) for group in groups)
    for coefficient, group in zip(shares, groups, strict=True):
        for i in group:
            result[i] = coefficient
    return result


def _effective_scales(payload: Payload, factor: float) -> Tensor:
    """The scales times a factor, rounded once; the very small ones are 0. float32."""
    scales = payload.scales.to(torch.float64) * factor
    return scales.masked_fill_(scales < _SMALLEST_SCALE, 0.0).to(torch.float32)


def _empty_like(payload: Payload) -> Tensor:
    return large_tensors.empty(payload.num_blocks * payload.block).view(-1, payload.block)


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
    result = _empty_like(payloads[0]).zero_()
    for start, stop in _chunks(payloads):
        target = result[start:stop]
        for payload, scales in used:
            codes = payload.block_codes(start, stop).to(torch.float32)
            target += codes.mul_(scales[start:stop, None])
    return result.view(-1)[: payloads[0].num_params]


def _trim(
    payloads: Sequence[Payload],
    factors: list[float],
    groups: Groups,
    mixing: Groups | None,
    trim: int,
) -> Tensor:
    """Trimmed mean of the scaled, grouped and mixed rows. float32, shape [N].

    Mixed rows are sums, not means: one division at the end serves both averages and keeps
    every sum a multiple of the smallest scale's last bit.
    """
    scales = [_effective_scales(p, factor) for p, factor in zip(payloads, factors, strict=True)]
    mixed_rows = 1 if mixing is None else len(mixing[0])
    share = 1.0 / (mixed_rows * (len(groups) - 2 * trim))
    result = _empty_like(payloads[0])
    for start, stop in _chunks(payloads):
        rows = [
            # + 0.0 because a code times a scale of 0 may be -0, which minimum orders at random.
            p.block_codes(start, stop).to(torch.float32).mul_(s[start:stop, None]).add_(0.0)
            for p, s in zip(payloads, scales, strict=True)
        ]
        if len(groups) < len(rows):
            rows = [ordered_sum([rows[i] for i in group]) for group in groups]
        if mixing is not None:
            rows = [ordered_sum([rows[j] for j in row]) for row in mixing]
        middle = middle_rows(rows, trim, torch.empty_like(rows[0]))
        torch.mul(ordered_sum(middle), share, out=result[start:stop])
    return result.view(-1)[: payloads[0].num_params]
