"""What peers of different speeds achieve together: from counts of tokens to shares.

Knows nothing of how they were run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroswarm.bench.promise import Promise

MIN_USED = 0.9
"""Share of the tokens trained that agreed sets must have used."""

MIN_SPEED = 0.9
"""Tokens a second together, in those of the peers alone, at least."""

LEAST_GOT = 0.9
"""Share of its processor time below which other programs have disturbed a node: then it counts
what was trained in the time that it got, and whether it was in steps all the time."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a peer said of itself at one moment."""

    at_s: float
    tokens: int
    """Trained on since its start."""
    windows: int = 0
    """Of its inner steps then."""
    processor_s: float = 0.0
    """Processor time that its process had since its start."""
    step_s: float = 0.0
    """Of that life, in inner steps."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one node did between two readings, a second."""

    tokens: float
    processor: float
    """Seconds of a processor that it got."""
    in_steps: float
    """Share of the time in inner steps, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured."""

    shares: tuple[float, ...]
    """Of a processor, that each node was to get."""
    alone: tuple[Pace, ...]
    together: tuple[Pace, ...]
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
    def is_disturbed(self) -> bool:
        """Whether other programs kept a node from what it was to get."""
        paces = zip(self.shares * 2, self.alone + self.together, strict=True)
        return any(pace.processor < LEAST_GOT * share for share, pace in paces)

    @property
    def speed_share(self) -> float:
        """Tokens a second together, in those of the peers alone."""
        return _ratio(_sum(self.together), _sum(self.alone))

    @property
    def work_share(self) -> float:
        """Tokens together, in those that the peers alone train in the same processor time."""
        pairs = zip(self.alone, self.together, strict=True)
        expected = sum(_ratio(a.tokens, a.processor) * t.processor for a, t in pairs)
        return _ratio(_sum(self.together), expected)

    @property
    def busy_share(self) -> float:
        """Share of the time in inner steps together, in that alone; of the peer that waits most."""
        pairs = zip(self.alone, self.together, strict=True)
        return min(_ratio(t.in_steps, a.in_steps) for a, t in pairs)

    def lines(self) -> list[str]:
        """For people."""
        slowest = min(pace.tokens for pace in self.alone) or 1.0
        ratios = " : ".join(f"{pace.tokens / slowest:.1f}" for pace in self.alone)
        alone = ", ".join(f"{pace.tokens:.0f}" for pace in self.alone)
        together = ", ".join(f"{pace.tokens:.0f}" for pace in self.together)
        whole = sum(size == len(self.windows) for size in self.set_sizes)
        return [
            f"alone: {alone} tokens/s (speeds {ratios})",
            f"together: {together} tokens/s, {100 * self.speed_share:.1f} % of the sum",
            f"processors got alone: {_list(p.processor for p in self.alone)}",
            f"processors got together: {_list(p.processor for p in self.together)}",
            f"trained in as much processor time: {100 * self.work_share:.1f} % of that alone",
            f"in steps: at least {100 * self.busy_share:.1f} % of the time that they are alone",
            f"windows a step at the end: {', '.join(map(str, self.windows))}",
            f"{self.rounds} rounds, {whole} of them with everybody's contribution",
            f"tokens trained: {self.tokens_trained}, used: {self.tokens_used}",
        ]

    def promises(self) -> list[Promise]:
        """What the swarm promises."""
        used = 100 * self.used_share
        if self.is_disturbed:
            speed, of = min(self.work_share, self.busy_share), "in the processor time that was left"
        else:
            speed, of = self.speed_share, "of the peers alone"
        return [
            Promise(
                "tokens are used",
                self.used_share >= MIN_USED,
                f"{used:.1f} % of the tokens trained were used (at least {100 * MIN_USED:.0f} %)",
            ),
            Promise(
                "nobody waits",
                speed >= MIN_SPEED,
                f"{100 * speed:.1f} % of the speed {of} (at least {100 * MIN_SPEED:.0f} %)",
            ),
        ]


def pace_of(readings: Sequence[Reading]) -> Pace:
    """What happened a second between the first and the last reading; nothing without two."""
    if len(readings) < 2 or readings[-1].at_s <= readings[0].at_s:
        return Pace(0.0, 0.0, 0.0)
    first, last = readings[0], readings[-1]
    passed_s = last.at_s - first.at_s
    return Pace(
        (last.tokens - first.tokens) / passed_s,
        (last.processor_s - first.processor_s) / passed_s,
        min(1.0, (last.step_s - first.step_s) / passed_s),
    )


def count_used(commits: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[int, ...]]:
    """Tokens that the rounds of an event log used, and contributions of each round.

    Args:
        commits: Its events `commit`, with `used_tokens`; of one round the newest counts.
    """
    by_round = {int(event["round"]): list(event["used_tokens"]) for event in commits}
    used = [by_round[number] for number in sorted(by_round)]
    return sum(map(sum, used)), tuple(map(len, used))


def _sum(paces: Sequence[Pace]) -> float:
    return sum(pace.tokens for pace in paces)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
