"""What peers of different speeds achieve together: from counts of tokens to shares.

Knows nothing of how they were run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroswarm.bench.promise import Promise

MIN_USED = 0.9
"""Share of the tokens trained that agreed sets must have used."""

MIN_SPEED = 0.9
"""Tokens a second together, in those of the peers alone, at least."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a peer said of itself at one moment."""

    at_s: float
    tokens: int
    """Trained on since its start."""
    windows: int = 0
    """Of its inner steps then."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured."""

    alone_tokens_per_s: tuple[float, ...]
    together_tokens_per_s: tuple[float, ...]
    tokens_trained: int
    """Together, from the start to the end."""
    tokens_used: int
    """Of those, in contributions that outer steps used."""
    windows: tuple[int, ...]
    """Of each peer's inner steps at the end."""
    rounds: int
    set_sizes: tuple[int, ...]
    """Contributions used in each round."""

    @property
    def used_share(self) -> float:
        """Share of the tokens trained that agreed sets used, 0 to 1."""
        return self.tokens_used / self.tokens_trained if self.tokens_trained else 0.0

    @property
    def speed_share(self) -> float:
        """Tokens a second together, in those of the peers alone."""
        alone = sum(self.alone_tokens_per_s)
        return sum(self.together_tokens_per_s) / alone if alone else 0.0

    def lines(self) -> list[str]:
        """For people."""
        slowest = min(self.alone_tokens_per_s) or 1.0
        ratios = " : ".join(f"{speed / slowest:.1f}" for speed in self.alone_tokens_per_s)
        alone = ", ".join(f"{speed:.0f}" for speed in self.alone_tokens_per_s)
        together = ", ".join(f"{speed:.0f}" for speed in self.together_tokens_per_s)
        whole = sum(size == len(self.windows) for size in self.set_sizes)
        return [
            f"alone: {alone} tokens/s (speeds {ratios})",
            f"together: {together} tokens/s, {100 * self.speed_share:.1f} % of the sum",
            f"windows a step at the end: {', '.join(map(str, self.windows))}",
            f"{self.rounds} rounds, {whole} of them with everybody's contribution",
            f"tokens trained: {self.tokens_trained}, used: {self.tokens_used}",
        ]

    def promises(self) -> list[Promise]:
        """What the swarm promises."""
        used, speed = 100 * self.used_share, 100 * self.speed_share
        return [
            Promise(
                "tokens are used",
                self.used_share >= MIN_USED,
                f"{used:.1f} % of the tokens trained were used (at least {100 * MIN_USED:.0f} %)",
            ),
            Promise(
                "nobody waits",
                self.speed_share >= MIN_SPEED,
                f"{speed:.1f} % of the speed of the peers alone (at least {100 * MIN_SPEED:.0f} %)",
            ),
        ]


def speed_of(readings: Sequence[Reading]) -> float:
    """Tokens a second between the first and the last reading; 0 without two."""
    if len(readings) < 2 or readings[-1].at_s <= readings[0].at_s:
        return 0.0
    first, last = readings[0], readings[-1]
    return (last.tokens - first.tokens) / (last.at_s - first.at_s)


def count_used(commits: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[int, ...]]:
    """Tokens that the rounds of an event log used, and contributions of each round.

    Args:
        commits: Its events `commit`, with `used_tokens`; of one round the newest counts.
    """
    by_round = {int(event["round"]): list(event["used_tokens"]) for event in commits}
    used = [by_round[number] for number in sorted(by_round)]
    return sum(map(sum, used)), tuple(map(len, used))
