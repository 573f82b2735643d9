"""Chooses the next token from logits; the same for the same generator on one machine.

Knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_TEMPERATURE = 1e-4
"""Below it the likeliest token is as good as certain, and float32 has no room for the others."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen.

    Args:
        max_tokens: At most so many, at least 1.
        temperature: Logits are divided by it; below 1e-4 the likeliest token is taken always.
        top_k: Only the k likeliest are drawn from; 0 for all.
        seed: Of the draws.

    Raises:
        ValueError: a value is out of range.
    """

    max_tokens: int = 200
    temperature: float = 0.8
    top_k: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens out of range: {self.max_tokens} (at least 1)")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature out of range: {self.temperature} (at least 0)")
        if self.top_k < 0:
            raise ValueError(f"top_k out of range: {self.top_k} (at least 0)")


def choose(logits_V: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Draw one token.

    Args:
        logits_V: Of each token, any float dtype.
        sampling: How.
        generator: On the CPU.
    """
    logits_V = logits_V.detach().float().cpu()
    if sampling.temperature < LEAST_TEMPERATURE:
        return int(logits_V.argmax())
    if 0 < sampling.top_k < logits_V.numel():
        values, tokens = logits_V.topk(sampling.top_k)
    else:
        values, tokens = logits_V, torch.arange(logits_V.numel())
    weights = torch.softmax(values / sampling.temperature, dim=-1)
    return int(tokens[torch.multinomial(weights, 1, generator=generator)])
