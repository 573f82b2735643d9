"""What the benchmark of RWKV-7 promises, and whether what was measured holds it.

Pure functions of times.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuroswarm.bench.promise import Promise

MIN_RATIO = 10.0
"""How many times as many tokens a second the training in chunks takes, at least."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Inner steps of one model, with the recurrence in three forms, in turns."""

    num_params: int
    tokens: int
    """Of one inner step."""
    chunk_s: Sequence[float]
    """Seconds of each inner step in chunks."""
    loop_s: Sequence[float]
    """Seconds of each inner step with a loop over time as the formula is written."""
    lean_s: Sequence[float]
    """Seconds of each inner step with a loop over time that makes no transition matrices."""

    @property
    def chunked(self) -> float:
        """Tokens a second in chunks, by the median step."""
        return self.tokens / statistics.median(self.chunk_s)

    @property
    def looped(self) -> float:
        """Tokens a second with a loop over time, by the median step."""
        return self.tokens / statistics.median(self.loop_s)

    @property
    def lean(self) -> float:
        """Tokens a second with the lean loop, by the median step."""
        return self.tokens / statistics.median(self.lean_s)

    @property
    def ratio(self) -> float:
        """Chunks over the loop."""
        return self.chunked / self.looped

    @property
    def lean_ratio(self) -> float:
        """Chunks over the lean loop."""
        return self.chunked / self.lean

    def lines(self) -> list[str]:
        """For people."""
        forms = (
            ("in chunks", self.chunked, self.chunk_s, ""),
            ("loop over time", self.looped, self.loop_s, f", ratio {self.ratio:.1f}"),
            ("lean loop", self.lean, self.lean_s, f", ratio {self.lean_ratio:.1f}"),
        )
        return [
            f"{name:14} {speed:8.0f} tokens/s ({len(steps)} steps){ratio}"
            for name, speed, steps, ratio in forms
        ]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, rounded."""
        return {
            "num_params": self.num_params,
            "tokens_per_step": self.tokens,
            "chunked_tokens_per_s": round(self.chunked, 1),
            "looped_tokens_per_s": round(self.looped, 1),
            "lean_tokens_per_s": round(self.lean, 1),
            "ratio": round(self.ratio, 2),
            "lean_ratio": round(self.lean_ratio, 2),
            "chunk_s": [round(seconds, 5) for seconds in self.chunk_s],
            "loop_s": [round(seconds, 5) for seconds in self.loop_s],
            "lean_s": [round(seconds, 5) for seconds in self.lean_s],
        }


def check(measured: Measured) -> list[Promise]:
    """What is promised, and whether it holds."""
    said = (
        f"training in chunks takes {measured.ratio:.1f} x the tokens a second of a loop over time "
        f"(promised: {MIN_RATIO:.0f})"
    )
    return [Promise("ratio", measured.ratio >= MIN_RATIO, said)]
