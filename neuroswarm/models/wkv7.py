"""The recurrence of RWKV-7 over time, in two forms: step by step, and in parallel within chunks.

Knows nothing of models, tokens and parameters.

For each head the state S [V, K] turns with every token t by

    S_t = S_{t-1} (diag(w_t) + a_t b_t^T) + v_t k_t^T,    y_t = S_t r_t

Shapes: B = batch, T = tokens, H = heads, K = V = head size, C = chunks, L = tokens of a chunk,
G = B * H.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neuroswarm.models.wkv7_chunk import CHUNK, MIN_LOG_DECAY, ChunkedWkv, cut

Wkv = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(r, log_w, k, v, a, b [B, T, H, K], state [B, H, V, K]) -> (y [B, T, H, V], next state)."""


def wkv_by_steps(
    r: Tensor, log_w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one token after the other, as the formula is written.

    What generation does, and what `wkv_in_chunks` is compared with. For training it is slow:
    every token costs a handful of small operations and keeps a whole state for the backward pass.

    Args:
        r: As for `wkv_in_chunks`, like all the others.
        log_w: May be anything up to 0 here.
        k: As there.
        v: As there.
        a: As there.
        b: As there.
        state: As there.

    Returns:
        As `wkv_in_chunks`.

    Cost: O(T K^2) a head in time; with gradients also in memory.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4.1 (weighted key value state evolution).
    """
    w = log_w.exp()
    outputs = []
    for t in range(r.shape[1]):
        removed = (state @ a[:, t, :, :, None]) * b[:, t, :, None, :]
        added = v[:, t, :, :, None] * k[:, t, :, None, :]
        state = state * w[:, t, :, None, :] + removed + added
        outputs.append((state @ r[:, t, :, :, None]).squeeze(-1))
    return torch.stack(outputs, dim=1), state


def wkv_in_chunks(
    r: Tensor, log_w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The same, with few large operations: parallel within chunks of 32 tokens and over them.

    Args:
        r: Receptance. Shape [B, T, H, K], T >= 1; all of one floating dtype and device.
        log_w: Natural logarithm of the decay, in [-exp(-0.5), 0]; see Raises.
        k: Key.
        v: Value.
        a: Direction that is read from the state and taken away; in the model of length 1.
        b: Direction in which it is taken away.
        state: S before the first token, [B, H, V, K]; usually float32.

    Returns:
        y [B, T, H, V] and S after the last token, in the dtype of `r` and of `state`. Computed in
        float64 if `r` is, otherwise in float32.

    Raises:
        ValueError: shapes do not fit one another.
        Decays below the range are not looked for: results hold down to log_w -2.6, and from
        -2.8 on they are not finite.

    Cost: O(T (L K + K^2)) a head in time; T / L small operations one after the other. For the
    backward pass some 10 K + 5 L numbers a token, and the state at the start of each chunk.

    Source: Peng et al. 2025, arXiv:2503.14456, section 4.1 (the recurrence); Yang et al. 2024,
        arXiv:2406.06484, section 3 (the delta rule in chunks by the WY representation).
        Differs: derived here for a transition diag(w) + a b^T, with its own backward pass.
    """
    _check(r, (log_w, k, v, a, b), state)
    dtype = torch.float64 if r.dtype == torch.float64 else torch.float32
    chunks = [cut(tensor.to(dtype)) for tensor in (r, log_w, k, v, a, b)]
    y: Tensor
    y, last = ChunkedWkv.apply(*chunks, state.to(dtype).flatten(0, 1))  # type: ignore[no-untyped-call]
    batch, length, heads, size = r.shape
    y = y.view(batch, heads, -1, size)[:, :, :length].transpose(1, 2)
    return y.to(r.dtype), last.view(state.shape).to(state.dtype)


def _check(r: Tensor, others: tuple[Tensor, ...], state: Tensor) -> None:
    if r.dim() != 4 or r.shape[1] < 1 or any(other.shape != r.shape for other in others):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (r, *others))
        raise ValueError(f"shapes differ or are not [B, T, H, K] with T >= 1: {shapes}")
    batch, _, heads, size = r.shape
    if state.shape != (batch, heads, size, size):
        found = tuple(state.shape)
        raise ValueError(f"state of shape {found} (needs {(batch, heads, size, size)})")


__all__ = ["CHUNK", "MIN_LOG_DECAY", "Wkv", "wkv_by_steps", "wkv_in_chunks"]
