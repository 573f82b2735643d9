"""The block of RWKV-7: time mixing, channel mixing, and what each remembers of the past.

Knows nothing of tokens and logits, nor of the values that parameters start with.

Shapes: B = batch, T = tokens, D = model width, H = heads, K = D / H (head size).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.models.rwkv7_shape import Rwkv7Config
from neuroswarm.models.wkv7 import MIN_LOG_DECAY, Wkv

LN_X_EPS = 64e-5
"""Of the norm of each head's output; the reference's, whatever the head size."""


@dataclass(frozen=True, slots=True)
class BlockState:
    """What one block remembers.

    Args:
        att_shift: Input of the time mixing at the last token, [B, D].
        wkv: The state of each head, [B, H, K, K], float32 (float64 in a float64 model).
        ffn_shift: Input of the channel mixing at the last token, [B, D].
    """

    att_shift: Tensor
    wkv: Tensor
    ffn_shift: Tensor

    def detach(self) -> BlockState:
        """The same values without the history of gradients."""
        return BlockState(self.att_shift.detach(), self.wkv.detach(), self.ffn_shift.detach())


class Uninitialised:
    """Layers whose parameters are left as memory was: someone else gives them their values."""

    class _Linear(nn.Linear):
        def reset_parameters(self) -> None:
            """Leave them."""

    class _Embedding(nn.Embedding):
        def reset_parameters(self) -> None:
            """Leave them."""

    @classmethod
    def linear(cls, num_in: int, num_out: int) -> nn.Linear:
        """A matrix without bias."""
        return cls._Linear(num_in, num_out, bias=False)

    @classmethod
    def embedding(cls, num_rows: int, dim: int) -> nn.Embedding:
        """A table of rows."""
        return cls._Embedding(num_rows, dim)


class Block(nn.Module):
    """One block; the first one also normalises what comes from the embedding."""

    def __init__(self, config: Rwkv7Config, layer: int) -> None:
        super().__init__()
        config = config.resolved()
        if layer == 0:
            self.ln0 = nn.LayerNorm(config.dim)
        self.ln1 = nn.LayerNorm(config.dim)
        self.ln2 = nn.LayerNorm(config.dim)
        self.att = TimeMix(config, layer)
        self.ffn = ChannelMix(config)

    def start(self, batch_size: int) -> BlockState:
        """The state before the first token."""
        like, heads, size = self.ln1.weight, self.att.num_heads, self.att.head_size
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        return BlockState(
            like.new_zeros(batch_size, like.numel()),
            like.new_zeros(batch_size, heads, size, size, dtype=dtype),
            like.new_zeros(batch_size, like.numel()),
        )

    def forward(
        self, x_BTD: Tensor, v_first_BTD: Tensor | None, state: BlockState, wkv: Wkv
    ) -> tuple[Tensor, Tensor, BlockState]:
        """The block's output, the first block's values, and the state after the last token."""
        if hasattr(self, "ln0"):
            x_BTD = self.ln0(x_BTD)
        in_att_BTD = self.ln1(x_BTD)
        mixed_BTD, v_first_BTD, after = self.att(
            in_att_BTD, _shifted(in_att_BTD, state.att_shift), v_first_BTD, state.wkv, wkv
        )
        x_BTD = x_BTD + mixed_BTD
        in_ffn_BTD = self.ln2(x_BTD)
        y_BTD = x_BTD + self.ffn(in_ffn_BTD, _shifted(in_ffn_BTD, state.ffn_shift))
        assert v_first_BTD is not None, "the first block returns its own"
        return y_BTD, v_first_BTD, BlockState(in_att_BTD[:, -1], after, in_ffn_BTD[:, -1])


class TimeMix(nn.Module):
    """Mixes over time, by a state that forgets, and replaces what stands under a key.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4.1, equations of the time mixing.
    """

    def __init__(self, config: Rwkv7Config, layer: int) -> None:
        super().__init__()
        dim = config.dim
        self.num_heads, self.head_size = config.num_heads, config.head_size
        self.x_r, self.x_w, self.x_k = _vector(dim), _vector(dim), _vector(dim)
        self.x_v, self.x_a, self.x_g = _vector(dim), _vector(dim), _vector(dim)
        self.w0, self.w1, self.w2 = _low_rank(dim, config.decay_rank)
        self.a0, self.a1, self.a2 = _low_rank(dim, config.rate_rank)
        if layer > 0:  # the first one's values are those that the others mix in
            self.v0, self.v1, self.v2 = _low_rank(dim, config.value_rank)
        _, self.g1, self.g2 = _low_rank(dim, config.gate_rank)
        self.k_k, self.k_a = _vector(dim), _vector(dim)
        self.r_k = _matrix(self.num_heads, self.head_size)
        self.receptance = Uninitialised.linear(dim, dim)
        self.key = Uninitialised.linear(dim, dim)
        self.value = Uninitialised.linear(dim, dim)
        self.output = Uninitialised.linear(dim, dim)
        self.ln_x = nn.GroupNorm(self.num_heads, dim, eps=LN_X_EPS)

    def forward(
        self,
        x_BTD: Tensor,
        before_BTD: Tensor,
        v_first_BTD: Tensor | None,
        state_BHKK: Tensor,
        wkv: Wkv,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is added to the stream, the first block's values, and the state."""
        change = before_BTD - x_BTD
        xr, xw, xk, xv, xa, xg = (
            torch.addcmul(x_BTD, change, share)
            for share in (self.x_r, self.x_w, self.x_k, self.x_v, self.x_a, self.x_g)
        )
        r, k, v = self.receptance(xr), self.key(xk), self.value(xv)
        log_w = MIN_LOG_DECAY * torch.sigmoid(self.w0 + torch.tanh(xw @ self.w1) @ self.w2)
        rate = torch.sigmoid(self.a0 + xa @ self.a1 @ self.a2)
        gate = torch.sigmoid(xg @ self.g1) @ self.g2
        if v_first_BTD is None:
            v_first_BTD = v
        else:
            v = torch.lerp(v, v_first_BTD, torch.sigmoid(self.v0 + xv @ self.v1 @ self.v2))
        removed = F.normalize(self._heads(k * self.k_k), dim=-1)
        k = torch.addcmul(k, k * self.k_a, rate - 1)
        r, log_w, k, v_heads, rate = map(self._heads, (r, log_w, k, v, rate))
        y, state_BHKK = wkv(r, log_w, k, v_heads, -removed, removed * rate, state_BHKK)
        y = F.layer_norm(y, (self.head_size,), eps=LN_X_EPS).flatten(2)
        y = torch.addcmul(self.ln_x.bias, y, self.ln_x.weight)
        bonus = (r * k * self.r_k).sum(-1, keepdim=True) * v_heads
        return self.output((y + bonus.flatten(2)) * gate), v_first_BTD, state_BHKK

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.view(*x_BTD.shape[:-1], self.num_heads, self.head_size)


class ChannelMix(nn.Module):
    """Mixes over channels: squared ReLU of this token and a share of the one before.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4.2 (the MLP).
    """

    def __init__(self, config: Rwkv7Config) -> None:
        super().__init__()
        self.x_k = _vector(config.dim)
        self.key = Uninitialised.linear(config.dim, config.hidden)
        self.value = Uninitialised.linear(config.hidden, config.dim)

    def forward(self, x_BTD: Tensor, before_BTD: Tensor) -> Tensor:
        """What is added to the stream."""
        key = self.key(torch.addcmul(x_BTD, before_BTD - x_BTD, self.x_k))
        y_BTD: Tensor = self.value(torch.relu(key).square())
        return y_BTD


def _shifted(x_BTD: Tensor, last_BD: Tensor) -> Tensor:
    """Each token's predecessor."""
    return torch.cat((last_BD.unsqueeze(1), x_BTD[:, :-1]), dim=1)


def _vector(dim: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(1, 1, dim))


def _low_rank(dim: int, rank: int) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    """A bias, a matrix down to the rank and one up again."""
    return _vector(dim), _matrix(dim, rank), _matrix(rank, dim)


def _matrix(num_rows: int, num_columns: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(num_rows, num_columns))
