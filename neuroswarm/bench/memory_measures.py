"""What the memory benchmark promises, and whether what was measured holds it.

Pure functions of what was seen.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from neuroswarm.bench.promise import Promise

FLOOR_INNER = 16
"""Bytes a parameter of a model, its gradient and two moments."""
FLOOR_OUTER = 8
"""Of outer parameters and momentum."""
FLOOR = FLOOR_INNER + FLOOR_OUTER

MAX_PEAK = 48.0
"""Bytes a parameter that are promised at most."""

WARM_UP_ROUNDS = 2
"""Of the rounds before, the start is seen, not the rest and the peak."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one node took at one time."""

    node: int
    finished: int
    """Rounds that it had finished."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes a parameter, beyond what a node with a tiny model takes; of the larger node."""

    num_params: int
    base_mb: float
    """Of a node with a tiny model, at its peak."""
    rest: float
    """In the middle of the time of a round."""
    peak: float
    start: float
    """The highest before the warm-up was over."""

    @property
    def rest_ratio(self) -> float:
        """The rest over the floor."""
        return self.rest / FLOOR

    @property
    def peak_ratio(self) -> float:
        """The peak over the floor."""
        return self.peak / FLOOR

    def lines(self) -> list[str]:
        """For people."""
        parts = f"{FLOOR_INNER} of the training, {FLOOR_OUTER} of the outer state"
        return [
            f"{self.num_params:,} parameters; floor {FLOOR} bytes a parameter ({parts})",
            f"at rest      {self.rest:5.1f} bytes a parameter, {self.rest_ratio:.2f} x the floor",
            f"at the peak  {self.peak:5.1f} bytes a parameter, {self.peak_ratio:.2f} x the floor",
            f"at the start {self.start:5.1f} bytes a parameter",
        ]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, rounded."""
        found = {**asdict(self), "rest_ratio": self.rest_ratio, "peak_ratio": self.peak_ratio}
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()} | {
            "floor": FLOOR
        }


def measure(samples: Sequence[Sample], num_params: int, base_bytes: int) -> Measured:
    """Put together what was seen.

    Args:
        samples: Of all nodes, in order.
        num_params: Of the model.
        base_bytes: What a node takes whatever its model.

    Raises:
        ValueError: nothing was seen after the warm-up.
    """
    warm = [s for s in samples if s.finished >= WARM_UP_ROUNDS]
    if not warm:
        raise ValueError(f"nothing was seen after {WARM_UP_ROUNDS} rounds")
    by_node = [[s.num_bytes for s in warm if s.node == node] for node in {s.node for s in warm}]
    cold = [s.num_bytes for s in samples if s.finished < WARM_UP_ROUNDS]

    def each(num_bytes: float) -> float:
        return (num_bytes - base_bytes) / num_params

    return Measured(
        num_params=num_params,
        base_mb=base_bytes / 1e6,
        rest=each(max(statistics.median(seen) for seen in by_node)),
        peak=each(max(s.num_bytes for s in warm)),
        start=each(max(cold, default=0)),
    )


def check(measured: Measured) -> list[Promise]:
    """What is promised, and whether it holds."""
    return [
        Promise(
            "peak",
            measured.peak <= MAX_PEAK,
            f"a node takes {measured.peak:.1f} bytes a parameter at the peak "
            f"(promised: {MAX_PEAK:.0f})",
        )
    ]
