"""A small language model on bytes: RMSNorm, rotary positions, SwiGLU, untied head.

Knows nothing of training or of other nodes; runs as it is on one slow core.

Shapes: B = batch, T = tokens, D = model width, H = heads, K = D / H, V = vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, each [T, 1, K / 2]."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Dimensions of a `Transformer`.

    Args:
        dim: Width D; a multiple of `2 * num_heads`.
        num_layers: Blocks, at least 1.
        num_heads: Attention heads H.
        context: Longest sequence T.
        vocab_size: Tokens V; 256 for bytes.
        hidden: Width of the feed-forward layer; 0 takes 8/3 of `dim`, rounded to 32.
        rope_base: Base of the rotary frequencies.

    Raises:
        ValueError: a dimension is not positive, or `dim` does not fit `num_heads`.
    """

    dim: int = 128
    num_layers: int = 2
    num_heads: int = 4
    context: int = 128
    vocab_size: int = 256
    hidden: int = 0
    rope_base: float = 10000.0

    def __post_init__(self) -> None:
        for name in ("dim", "num_layers", "num_heads", "context", "vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} out of range: {getattr(self, name)} (at least 1)")
        if self.hidden < 0:
            raise ValueError(f"hidden out of range: {self.hidden} (at least 0)")
        if self.dim % (2 * self.num_heads):
            raise ValueError(
                f"dim does not fit num_heads: {self.dim} is no multiple of 2 * {self.num_heads}"
            )

    @property
    def hidden_dim(self) -> int:
        """Width of the feed-forward layer."""
        return self.hidden or max(32, round(self.dim * 8 / 3 / 32) * 32)


class Transformer(nn.Module):
    """A decoder-only transformer.

    Fragments: `embedding`, `blocks.0` ... , `head` (final norm and output projection).

    Args:
        config: Dimensions.
        seed: Of the initial parameters; the same seed gives the same parameters on one machine.
            (A swarm takes them from its genesis, so machines need not agree on them.)

    Source: Touvron et al. 2023, arXiv:2302.13971, section 2.2 (the three parts); Su et al. 2021,
        arXiv:2104.09864 (rotary positions).
        Differs: projections into queries, keys and values, and into gate and value of SwiGLU, are
        one matrix each; output projections start smaller by sqrt(2 * num_layers) (GPT-2).
    """

    def __init__(self, config: TransformerConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        self.head = _Head(config)
        cos, sin = _rotary(config)
        self._cos: Tensor
        self._sin: Tensor
        self.register_buffer("_cos", cos, persistent=False)
        self.register_buffer("_sin", sin, persistent=False)
        self._initialise(torch.Generator().manual_seed(seed))

    @property
    def dimensions(self) -> Mapping[str, int | float | str]:
        """The configuration by name, for the architecture hash."""
        return {**dataclasses.asdict(self.config), "hidden": self.config.hidden_dim}

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor | None = None) -> Tensor:
        """Predict the next token.

        Args:
            inputs_BT: Tokens, int64 in [0, V), T <= context.
            targets_BT: What follows each of them, the same shape; None to get logits.

        Returns:
            Mean cross-entropy in nats (a scalar), or logits [B, T, V] without targets.
        """
        length = inputs_BT.shape[1]
        if length > self.config.context:
            raise ValueError(f"too many tokens: {length} (context {self.config.context})")
        rotary = self._cos[:length], self._sin[:length]
        x_BTD = self.embedding(inputs_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD, rotary)
        logits_BTV: Tensor = self.head(x_BTD)
        if targets_BT is None:
            return logits_BTV
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        small = INIT_STD / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue  # norm gains stay at one
            std = small if name.endswith("out.weight") else INIT_STD
            parameter.normal_(0.0, std, generator=generator)


class _Block(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.attention = _Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.feed_forward = _FeedForward(config)

    def forward(self, x_BTD: Tensor, rotary: Rotary) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), rotary)
        y_BTD: Tensor = x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD))
        return y_BTD


class _Attention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_BTD: Tensor, rotary: Rotary) -> Tensor:
        B, T, D = x_BTD.shape
        qk, v = self.qkv(x_BTD).split((2 * D, D), dim=-1)
        qk = _rotate(qk.unflatten(-1, (2 * self.num_heads, -1)), rotary)
        q_BHTK, k_BHTK = qk.transpose(1, 2).chunk(2, dim=1)
        v_BHTK = v.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        mixed_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        y_BTD: Tensor = self.out(mixed_BHTK.transpose(1, 2).reshape(B, T, D))
        return y_BTD


class _FeedForward(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_and_value = nn.Linear(config.dim, 2 * config.hidden_dim, bias=False)
        self.out = nn.Linear(config.hidden_dim, config.dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, value = self.gate_and_value(x_BTD).chunk(2, dim=-1)
        y_BTD: Tensor = self.out(F.silu(gate) * value)
        return y_BTD


class _Head(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.projection = nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        logits_BTV: Tensor = self.projection(self.norm(x_BTD))
        return logits_BTV


def _rotary(config: TransformerConfig) -> Rotary:
    """Cosines and sines of the angles by which pairs of a head's values turn."""
    width = config.dim // config.num_heads
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    frequencies = config.rope_base**-exponents
    angles = torch.outer(torch.arange(config.context, dtype=torch.float64), frequencies)[:, None]
    return angles.cos().float(), angles.sin().float()


def _rotate(x_BTHK: Tensor, rotary: Rotary) -> Tensor:
    """Turn value i of each head together with value i + K / 2."""
    cos, sin = rotary
    first, second = x_BTHK.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
