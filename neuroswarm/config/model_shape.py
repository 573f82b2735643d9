"""The built-in models by name, and which widths and heads go together.

Knows nothing of what the models compute.
"""

from __future__ import annotations

from typing import Literal

ModelName = Literal["transformer", "rwkv7"]

TRANSFORMER_HEADS = 4
RWKV7_HEAD_SIZE = 64
"""Width of a head in all public checkpoints of RWKV-7."""
RWKV7_MIN_HEAD_SIZE = 2


def choose_num_heads(model: ModelName, dim: int, num_heads: int | None) -> int:
    """Heads of each block: those asked for, or the model's default.

    Args:
        model: Name of a built-in model.
        dim: Its width.
        num_heads: What the user asks for; None for the default.

    Raises:
        ValueError: such heads do not divide the width.
    """
    if model == "transformer":
        heads = TRANSFORMER_HEADS if num_heads is None else num_heads
        if dim % (2 * heads):
            raise ValueError(
                f"dim {dim} is no multiple of 2 x num_heads {heads} (rotary positions turn pairs)"
            )
        return heads
    if num_heads is None:
        if dim % RWKV7_HEAD_SIZE:
            raise ValueError(
                f"dim {dim} is no multiple of {RWKV7_HEAD_SIZE}, the width of a head in rwkv7 "
                "(or set num_heads)"
            )
        return dim // RWKV7_HEAD_SIZE
    if dim % num_heads:
        raise ValueError(f"dim {dim} is no multiple of num_heads {num_heads}")
    if dim // num_heads < RWKV7_MIN_HEAD_SIZE:
        raise ValueError(
            f"dim {dim} and num_heads {num_heads} leave heads of width {dim // num_heads} "
            f"(at least {RWKV7_MIN_HEAD_SIZE} in rwkv7)"
        )
    return num_heads
