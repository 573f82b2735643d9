"""The table of aggregation rules: what each is, and how many hostile contributions it bears.

Legend: P contributing peers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from neuroswarm.aggregation.centered_clipping import centered_clipping_coefficients
from neuroswarm.aggregation.geometric_median import geometric_median_coefficients
from neuroswarm.aggregation.krum import krum_coefficients, multi_krum_coefficients
from neuroswarm.aggregation.votes import mean_coefficients


class VectorRule(Protocol):
    """A rule whose result is a sum of the rows times coefficients of their Gram matrix."""

    def __call__(
        self, gram_PP: Tensor, num_byzantine: int, weights: Sequence[float] | None = None, /
    ) -> list[float]:
        """Coefficients of the rows.

        Args:
            gram_PP: Inner products, float64, shape [P, P]; is not written.
            num_byzantine: f.
            weights: Shares that the peers claim, for rules that use them.

        Returns:
            P coefficients of at least 0 that add up to 1.

        Raises:
            QuorumError: P is too small for f.
        """
        ...


@dataclass(frozen=True)
class Method:
    """One rule.

    Args:
        max_byzantine: Largest f by number of rows; below 0 if the rule cannot run at all.
        coefficients: None for rules that look at each coordinate alone.
    """

    max_byzantine: Callable[[int], int]
    coefficients: VectorRule | None = None


def _below_half(num_rows: int) -> int:
    return (num_rows - 1) // 2


def _krum_bound(num_rows: int) -> int:
    return (num_rows - 3) // 2


METHODS: Mapping[str, Method] = {
    # The mean bears none; its f is that of the mixing and screening before it.
    "mean": Method(_below_half, mean_coefficients),
    "median": Method(_below_half),
    "trimmed_mean": Method(_below_half),
    "krum": Method(_krum_bound, krum_coefficients),
    "multi_krum": Method(_krum_bound, multi_krum_coefficients),
    "geometric_median": Method(_below_half, geometric_median_coefficients),
    "centered_clipping": Method(_below_half, centered_clipping_coefficients),
}
"""Every rule by its name in the swarm's rules."""


def find_method(name: str) -> Method:
    """The rule of that name; ValueError that names the known ones."""
    if name not in METHODS:
        raise ValueError(f"aggregation method: {name!r} (one of {', '.join(METHODS)})")
    return METHODS[name]


def vector_rule(name: str, krum_neighbours: str) -> VectorRule | None:
    """The rule's coefficients with Krum's convention; None for coordinate-wise rules."""
    if name == "krum":
        return functools.partial(krum_coefficients, neighbours=krum_neighbours)
    if name == "multi_krum":
        return functools.partial(multi_krum_coefficients, neighbours=krum_neighbours)
    return find_method(name).coefficients
