"""Which model a text names, and which widths and heads of built-in ones go together.

Knows nothing of what the models compute, and opens no file.
"""

from __future__ import annotations

import difflib
import re

BUILT_IN = ("transformer", "rwkv7")
HF_PREFIX = "hf:"
"""Before the path of a folder with a Hugging Face model; no module of a factory can be `hf`."""

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

TRANSFORMER_HEADS = 4
RWKV7_HEAD_SIZE = 64
"""Width of a head in all public checkpoints of RWKV-7."""
RWKV7_MIN_HEAD_SIZE = 2


def check_model(text: str) -> str:
    """The text, if it can name a model: a built-in one, `hf:FOLDER`, or `module:factory`.

    Raises:
        ValueError: it cannot.
    """
    if text in BUILT_IN or (_FACTORY.fullmatch(text) and not text.startswith(HF_PREFIX)):
        return text
    if text.startswith(HF_PREFIX) and text.removeprefix(HF_PREFIX).strip():
        return text
    near = difflib.get_close_matches(text, BUILT_IN, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"{text!r} names no model ({', '.join(BUILT_IN)}, hf:FOLDER or module:factory){hint}"
    )


def choose_num_heads(model: str, dim: int, num_heads: int | None) -> int:
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
