"""What a colluding minority that sees every honest contribution publishes instead of its own.

Pure functions of the honest contributions; refuses to know rules, rounds and models.

Legend: P honest peers, A attackers, N flattened parameters of the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist

import torch
from torch import Tensor

FALLBACK_DEVIATIONS = 1.5
"""Standard deviations of ALIE where its formula gives none; what the field's libraries take."""


def sign_flip(honest_PN: Tensor) -> Tensor:
    """The negated mean of the honest rows. Shape [N].

    Source: Li et al. 2019, arXiv:1811.03761 (sign flipping); byzfl's convention.
    """
    return -honest_PN.mean(dim=0)


def scaling(honest_PN: Tensor, factor: float = 100.0) -> Tensor:
    """The mean of the honest rows, enlarged: a leap in their own direction. Shape [N]."""
    return honest_PN.mean(dim=0) * factor


def ipm(honest_PN: Tensor, factor: float) -> Tensor:
    """Inner-product manipulation: the mean times a negative number. Shape [N].

    A factor below 1 makes short vectors that pass for honest ones by their length.

    Source: Xie et al. 2019, arXiv:1903.03936, section 4.
    """
    return honest_PN.mean(dim=0) * -factor


def hidden_ipm(honest_PN: Tensor, angle: float, length: float, cover_N: Tensor) -> Tensor:
    """Inner-product manipulation that hides its direction behind noise. Shape [N].

    A screening by direction sees what is against the mean only where it is most of the vector.

    Args:
        honest_PN: Not written.
        angle: Radians between the vector and the negated mean; 0 hides nothing, pi / 2 is noise.
        length: Norm of the result.
        cover_N: Noise; its part along the mean is left out.
    """
    mean_N = honest_PN.mean(dim=0)
    against_N = -mean_N / mean_N.norm()
    aside_N = cover_N - against_N * cover_N.dot(against_N)
    aside_N = aside_N / aside_N.norm()
    hidden_N: Tensor = (against_N * math.cos(angle) + aside_N * math.sin(angle)) * length
    return hidden_N


def alie(honest_PN: Tensor, deviations: float) -> Tensor:
    """A little is enough: the mean plus so many standard deviations. Shape [N].

    Args:
        honest_PN: At least two rows.
        deviations: z; negative ones go to the other side.

    Source: Baruch et al. 2019, arXiv:1902.06156, algorithm 3.
        Differs: plus for minus, as in byzfl; the deviation is that of a sample (P - 1).
    """
    return honest_PN.mean(dim=0) + honest_PN.std(dim=0) * deviations


def alie_deviations(num_peers: int, num_attackers: int) -> float:
    """The z that the paper chooses for n peers of which f attack; `FALLBACK_DEVIATIONS` below 0.1.

    With s = floor(n / 2 + 1) - f supporters needed: the z with normal probability
    (n - f - s) / (n - f). For 8 and 2 that is 0, the honest mean and no attack.

    Source: Baruch et al. 2019, arXiv:1902.06156, section 3.2.
    """
    num_honest = num_peers - num_attackers
    supporters = num_peers // 2 + 1 - num_attackers
    share = (num_honest - supporters) / num_honest
    if not 0 < share < 1:
        return FALLBACK_DEVIATIONS
    deviations = NormalDist().inv_cdf(share)
    return deviations if deviations >= 0.1 else FALLBACK_DEVIATIONS


def gaussian(
    honest_PN: Tensor, num_attackers: int, relative_norm: float, generator: torch.Generator
) -> Tensor:
    """Independent noise, each row so many times as long as the honest rows are on average. [A, N].

    Args:
        honest_PN: Not written.
        num_attackers: A.
        relative_norm: Above 0.
        generator: Where the noise comes from.
    """
    noise_AN = torch.randn(num_attackers, honest_PN.shape[1], generator=generator)
    length = honest_PN.norm(dim=1).mean() * relative_norm
    scaled_AN: Tensor = noise_AN * (length / noise_AN.norm(dim=1, keepdim=True))
    return scaled_AN


def mimic(honest_PN: Tensor, victim: int) -> Tensor:
    """A copy of one honest row, which gives its data too much weight. Shape [N].

    Source: Karimireddy et al. 2022, arXiv:2006.09365, section 4.2.
        Differs: the victim is given, not the one along which the rows vary most.
    """
    return honest_PN[victim].clone()


def search_factor(
    effect: Callable[[float], float], factors: Sequence[float], num_refinements: int = 4
) -> float:
    """The factor with the greatest effect: the best of a list, then halving steps around it.

    Args:
        effect: Runs the defence on an attack with that factor; what the attacker gains.
        factors: Ascending, at least two.
        num_refinements: Times that the middles towards both neighbours are tried.

    Returns:
        The first of the best that were tried.

    Source: Shejwalkar and Houmansadr 2021 (NDSS), algorithm 1: an attacker that optimises its
        factor against the known rule. Differs: a list instead of doublings, so that effects
        with several maxima are seen.
    """
    gains = {factor: effect(factor) for factor in factors}
    for _ in range(num_refinements):
        tried = sorted(gains)
        at = tried.index(_best(gains))
        around = tried[max(0, at - 1) : at + 2]
        for low, high in pairwise(around):
            gains[(low + high) / 2] = effect((low + high) / 2)
    return _best(gains)


def _best(gains: dict[float, float]) -> float:
    return max(gains, key=lambda factor: (gains[factor], -abs(factor)))
