"""The recurrence of RWKV-7 in chunks, forward and backward: matrix products of many small blocks.

Knows nothing of what is outside of it: models, heads and batches.

Within a chunk let P_t = w_1 ... w_t and u_t = S_{t-1} a_t, what is read to be taken away. Then

    S_t = (S_0 + sum_{s <= t} u_s (b_s / P_s)^T + v_s (k_s / P_s)^T) diag(P_t)

so the u_t solve a triangular system, and the y_t = S_t r_t and the last state follow from them.

Shapes: G = batch * heads, C = chunks, L = tokens of a chunk, K = V = head size. In a chunk:

    X [2L, K]   rows a_t P_{t-1}, then rows r_t P_t
    Y [2L, K]   rows b_s / P_s, then rows k_s / P_s
    F [2L, 2L]  X Y^T where s < t; in the lower half, which is for y, where s <= t
    U [L, V]    rows u_t, from U = Xa S_0^T + Fab U + Fak V
    W [L, K]    (1 - Fab)^-1 Xa: what of U comes from S_0

The gradients have the same form: with H the gradient of the right-hand side of the system for U,
[H; dy] stands to [U; V] as X stands to Y.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

MIN_LOG_DECAY = -math.exp(-0.5)
"""Least log(w): the model squashes its decays into (exp(-exp(-0.5)), 1), about (0.545, 1)."""

CHUNK = 32
"""Tokens of a chunk, L. 1 / P_L is at most exp(32 * exp(-0.5)) = 2.7e8 in the legal range of
decays. What counts in F are products in which it meets a P_t that is smaller still, so they are at
most 1 times the inputs and exact to rounding, and float32 (3e38) is far from its ends; only the
part of F that is masked away is large. From 147 tokens on, 1 / P_L itself would overflow. Chunks
of 64 trained no faster, chunks of 16 a tenth slower (docs/models.md)."""


def cut(tensor: Tensor) -> Tensor:
    """[B, T, H, K] into [G, C, L, K], with zeros after the last token.

    Zeros change nothing: the decay is exp(0) = 1, and nothing is added or taken away.
    """
    batch, length, heads, size = tensor.shape
    num_chunks = -(-length // CHUNK)
    moved = tensor.transpose(1, 2)
    if num_chunks * CHUNK != length:
        moved = pad(moved, (0, 0, 0, num_chunks * CHUNK - length))
    return moved.reshape(batch * heads, num_chunks, CHUNK, size)


class ChunkedWkv(torch.autograd.Function):
    """(r, log_w, k, v, a, b [G, C, L, K], state [G, V, K]) -> (y [G, C, L, V], state [G, V, K]).

    Can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """See the class."""
        r, log_w, k, v, a, b, state = inputs
        scaled = _Scaled.of(r, log_w, k, a, b)
        f = _masked(scaled.x @ scaled.y.mT)
        f_a, f_r = f.chunk(2, dim=-2)
        f_ab, f_ak = f_a.chunk(2, dim=-1)
        inverse = _invert_one_minus(f_ab)
        xa, xr = scaled.x.chunk(2, dim=-2)
        w, z = inverse @ xa, inverse @ (f_ak @ v)
        y_end = scaled.y * scaled.p_end
        added = torch.cat((z, v), dim=-2).mT @ y_end
        states, last = _run(state, scaled.p_end, added, w.mT, y_end.chunk(2, dim=-2)[0])
        uv = torch.cat((z + w @ states.mT, v), dim=-2)
        y = f_r @ uv + xr @ states.mT
        ctx.save_for_backward(*scaled, f, inverse, w, uv, states)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """Gradients of all seven, from those of y and of the last state."""
        dy, dlast = grads
        *factors, f, inverse, w, uv, states = ctx.saved_tensors
        scaled = _Scaled(*factors)
        y_end = scaled.y * scaled.p_end
        b_end, k_end = y_end.chunk(2, dim=-2)
        f_r = f.chunk(2, dim=-2)[1]
        du = f_r.chunk(2, dim=-1)[0].mT @ dy
        xr = scaled.x.chunk(2, dim=-2)[1]
        added = du.mT @ w + dy.mT @ xr
        dstates, dfirst = _run(dlast, scaled.p_end, added, b_end.mT, w, backwards=True)
        h = inverse.mT @ (du + b_end @ dstates.mT)
        hy = torch.cat((h, dy), dim=-2)
        df = _masked(hy @ uv.mT)
        dv = f.chunk(2, dim=-1)[1].mT @ hy + k_end @ dstates.mT
        dr, dlog_w, dk, da, db = scaled.backward(
            dx=df @ scaled.y + hy @ states,
            dy=df.mT @ scaled.x,
            dy_end=uv @ dstates,
            dp_end=(dstates * states).sum(-2, keepdim=True),
        )
        return dr, dlog_w, dk, dv, da, db, dfirst


class _Scaled(NamedTuple):
    """X and Y of all chunks, and the factors in them: all that the backward pass needs."""

    x: Tensor
    y: Tensor
    p: Tensor
    """P_t, [G, C, L, K]."""
    p_before: Tensor
    """P_{t-1}."""
    per_p: Tensor
    """1 / P_t."""

    @classmethod
    def of(cls, r: Tensor, log_w: Tensor, k: Tensor, a: Tensor, b: Tensor) -> Self:
        """Multiply the factors in."""
        log_p = _sums(r) @ log_w
        p, p_before, per_p = log_p.exp(), (log_p - log_w).exp(), log_p.neg().exp()
        return cls(_stack(a, p_before, r, p), _stack(b, per_p, k, per_p), p, p_before, per_p)

    @property
    def p_end(self) -> Tensor:
        """P_L, [G, C, 1, K]."""
        return self.p[..., -1:, :]

    def backward(
        self, *, dx: Tensor, dy: Tensor, dy_end: Tensor, dp_end: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Gradients of r, log_w, k, a and b, from those of X, Y, Y diag(P_L) and of P_L beside."""
        dy_end *= self.p_end
        dp_end = dp_end * self.p_end + (dy_end * self.y).sum(-2, keepdim=True)
        dy += dy_end
        of_a, of_r = (dx * self.x).chunk(2, dim=-2)
        of_b, of_k = (dy * self.y).chunk(2, dim=-2)
        # P_t has the decays up to t in it, P_{t-1} those before: hence the last term.
        dlog_w = _sums(of_a).mT @ (of_r + of_a - of_b - of_k) + dp_end - of_a
        dxa, dxr = dx.chunk(2, dim=-2)
        dyb, dyk = dy.chunk(2, dim=-2)
        return dxr * self.p, dlog_w, dyk * self.per_p, dxa * self.p_before, dyb * self.per_p


def _stack(first: Tensor, factor: Tensor, second: Tensor, other: Tensor) -> Tensor:
    """Rows of first * factor, then those of second * other."""
    *outer, size, width = first.shape
    stacked = first.new_empty(*outer, 2 * size, width)
    torch.mul(first, factor, out=stacked[..., :size, :])
    torch.mul(second, other, out=stacked[..., size:, :])
    return stacked


def _run(
    state: Tensor,
    decay: Tensor,
    added: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    backwards: bool = False,
) -> tuple[Tensor, Tensor]:
    """S_{c+1} = S_c diag(decay_c) + added_c + (S_c left_c) right_c, from chunk to chunk.

    Args:
        state: S before the first of them, [G, V, K].
        decay: [G, C, 1, K].
        added: [G, C, V, K].
        left: [G, C, K, L].
        right: [G, C, L, K].
        backwards: Start with the last chunk.

    Returns:
        The state that each chunk starts with, [G, C, V, K], and the one after the last.
    """
    starts = torch.empty_like(added)
    chunks = range(added.shape[1])
    for chunk in reversed(chunks) if backwards else chunks:
        starts[:, chunk] = state
        kept = torch.addcmul(added[:, chunk], state, decay[:, chunk])
        state = torch.baddbmm(kept, state @ left[:, chunk], right[:, chunk])
    return starts, state


def _masked(f: Tensor) -> Tensor:
    """The part of F [..., 2L, 2L] that counts; in place."""
    size = f.shape[-1] // 2
    ones = torch.ones(size, size, dtype=torch.bool, device=f.device)
    counts = torch.cat((ones.tril(-1), ones.tril()), dim=0).repeat(1, 2)
    return f.masked_fill_(~counts, 0.0)


def _invert_one_minus(f_ab: Tensor) -> Tensor:
    """(1 - Fab)^-1, by substitution: sums of powers of Fab would cancel where keys repeat."""
    size = f_ab.shape[-1]
    identity = torch.eye(size, dtype=f_ab.dtype, device=f_ab.device)
    inverse: Tensor = torch.linalg.solve_triangular(
        identity - f_ab, identity.expand_as(f_ab), upper=False, unitriangular=True
    )
    return inverse


def _sums(like: Tensor) -> Tensor:
    """A matrix [L, L] that sums up; on the CPU its product is much faster than `cumsum`."""
    size = like.shape[-2]
    return torch.ones(size, size, dtype=like.dtype, device=like.device).tril()
