"""How many arbitrary contributions a round must withstand, and which rule bears them.

Knows counts and the swarm's rules; refuses to know tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from neuroswarm.aggregation.bucketing import choose_bucket_size
from neuroswarm.aggregation.methods import METHODS
from neuroswarm.config.legality import fallback_method


class ToleranceRules(Protocol):
    """The part of the swarm's rules that decides f."""

    @property
    def aggregation_method(self) -> str:
        """A name of `methods.METHODS`."""
        ...

    @property
    def codec(self) -> str:
        """Decides which rule is the fallback."""
        ...

    @property
    def bucket_size(self) -> int:
        """Contributions averaged before the rule, at most."""
        ...

    @property
    def krum_f(self) -> int:
        """Least f."""
        ...

    @property
    def trimmed_mean_beta(self) -> float:
        """Least share of the set that f is."""
        ...


@dataclass(frozen=True)
class Tolerance:
    """The rule that a set gets, and the f it is run with."""

    method: str
    num_byzantine: int
    is_fallback: bool

    def __str__(self) -> str:
        name = f"fallback {self.method}" if self.is_fallback else self.method
        return f"{name} f={self.num_byzantine}"


def num_byzantine(num_contributions: int, num_identities: int, rules: ToleranceRules) -> int:
    """The f of a set: min(max(floor(M/4), krum_f, floor(beta n)), what the rule bears), or 0.

    Args:
        num_contributions: n, size of the set.
        num_identities: M, nodes agreed in the last 16 rounds and in this set. Taking n instead
            would lose the guarantee when honest peers skip.
        rules: The swarm's rules.
    """
    wanted = max(
        num_identities // 4,
        rules.krum_f,
        math.floor(rules.trimmed_mean_beta * num_contributions),
    )
    borne = max_byzantine(rules.aggregation_method, num_contributions)
    return max(0, min(wanted, borne))


def max_byzantine(method: str, num_contributions: int) -> int:
    """Largest f that a rule bears in a set of that size; below 0 if it cannot run at all.

    (n - 3) // 2 for Krum and multi-Krum, else (n - 1) // 2. The mean bears none; its f is that
    of the mixing and screening before it.
    """
    return METHODS[method].max_byzantine(num_contributions)


def bucket_size(tolerance: Tolerance, num_contributions: int, rules: ToleranceRules) -> int:
    """Contributions to average before the rule: as many as the rules ask for and f allows.

    None are in a fallback: there is nothing to spare.

    Args:
        tolerance: Of the round, with its f.
        num_contributions: n that are left after screening.
        rules: The swarm's rules.
    """
    if tolerance.is_fallback:
        return 1
    bears = METHODS[tolerance.method].max_byzantine
    return choose_bucket_size(num_contributions, tolerance.num_byzantine, rules.bucket_size, bears)


def choose_rule(num_contributions: int, num_identities: int, rules: ToleranceRules) -> Tolerance:
    """The rules' own method, or the fallback where it cannot bear floor(M/4).

    Fallback: the coordinate-wise median, or behind a sparse codec the geometric median, both
    with f = (n - 1) // 2 and for one or two contributions their mean; the mean stays the mean.
    The caller bounds norms in it whatever the rules say, also against the outer momentum,
    since one or two contributions have no median.

    Args:
        num_contributions: n, at least 1.
        num_identities: M, at least n.
        rules: The swarm's rules.
    """
    method = rules.aggregation_method
    if num_identities // 4 <= max_byzantine(method, num_contributions):
        return Tolerance(method, num_byzantine(num_contributions, num_identities, rules), False)
    fallback = "mean" if method == "mean" else fallback_method(rules.codec)
    return Tolerance(fallback, (num_contributions - 1) // 2, True)
