"""The dimensions of an RWKV-7 model.

Knows nothing of its parameters' values.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

HEAD_SIZE = 64
"""Width of a head in all public checkpoints."""

MIN_HEAD_SIZE = 2

_PUBLIC_RANKS = {
    768: (64, 64, 32, 128),
    1024: (64, 64, 32, 128),
    2048: (96, 96, 64, 256),
}
"""Of decay, learning rate, value and gate in the public checkpoints of 0.1B, 0.4B and 1.5B."""

_RANK_FACTORS = (2.5, 2.5, 1.7, 5.0)


@dataclass(frozen=True, slots=True)
class Rwkv7Config:
    """Dimensions of an `Rwkv7`. There is no longest sequence.

    Args:
        dim: Width D; a multiple of `head_size`.
        num_layers: Blocks, at least 1.
        head_size: Width of a head, K, at least 2; public checkpoints have 64.
        vocab_size: Tokens V; 256 for bytes.
        hidden: Width of the feed-forward layer; 0 takes 4 times `dim`.
        decay_rank: Of the low-rank matrices w1, w2; 0 takes that of the public checkpoint of the
            same width, else the rule of the authors' training code, a multiple of 32.
        rate_rank: Of a1, a2, likewise.
        value_rank: Of v1, v2, likewise.
        gate_rank: Of g1, g2, likewise.

    Raises:
        ValueError: a dimension is out of range, or `dim` is no multiple of `head_size`.

    Source: RWKV-LM, RWKV-v7/train_temp/src/model.py (ranks: 2.5, 2.5, 1.7 and 5 times the square
        root of D, rounded to 32, at least 32).
    """

    dim: int = 128
    num_layers: int = 2
    head_size: int = HEAD_SIZE
    vocab_size: int = 256
    hidden: int = 0
    decay_rank: int = 0
    rate_rank: int = 0
    value_rank: int = 0
    gate_rank: int = 0

    def __post_init__(self) -> None:
        least = {field.name: 0 for field in dataclasses.fields(self)} | {
            "dim": 1,
            "num_layers": 1,
            "head_size": MIN_HEAD_SIZE,
            "vocab_size": 1,
        }
        for name, at_least in least.items():
            if getattr(self, name) < at_least:
                raise ValueError(
                    f"{name} out of range: {getattr(self, name)} (at least {at_least})"
                )
        if self.dim % self.head_size:
            raise ValueError(
                f"dim does not fit head_size: {self.dim} is no multiple of {self.head_size}"
            )

    @property
    def num_heads(self) -> int:
        """Heads H."""
        return self.dim // self.head_size

    def resolved(self) -> Rwkv7Config:
        """The same with every dimension that was left at 0 filled in."""
        ranks = _PUBLIC_RANKS.get(self.dim) or tuple(
            max(32, round(factor * math.sqrt(self.dim) / 32) * 32) for factor in _RANK_FACTORS
        )
        decay, rate, value, gate = ranks
        return dataclasses.replace(
            self,
            hidden=self.hidden or 4 * self.dim,
            decay_rank=self.decay_rank or decay,
            rate_rank=self.rate_rank or rate,
            value_rank=self.value_rank or value,
            gate_rank=self.gate_rank or gate,
        )
