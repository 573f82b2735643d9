"""The frozen matrix A of a low-rank adapter, the same bits on every machine.

Knows nothing of layers and models. The procedure, exactly, for a layer's name, a seed, a shape
[R, N] and a bound:

1. Take the first 4 R N bytes of SHAKE-256 of the 20 ASCII bytes `neuroswarm v1 lora A`, a zero
   byte, the seed as 8 bytes, little-endian, and the name in UTF-8.
2. Read them as little-endian unsigned 32-bit integers, row by row; w is one of them, k = w >> 8.
3. The value is (2 k + 1 - 2^24) * 2^-24 * bound: uniform, symmetric, never zero. The first
   product is exact in float32, the second one is rounded once, as IEEE 754 says.

No library's random generator has a part in it, so that x86 and ARM, and all versions, agree.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

_DOMAIN = b"neuroswarm v1 lora A\0"
_BITS = 24
"""Of a float32's significand: every odd number below 2^24 is one exactly."""


def draw_a(name: str, seed: int, shape: tuple[int, int], bound: float) -> Tensor:
    """Draw A by the procedure above.

    Args:
        name: Of the layer, as the model names it.
        seed: In [0, 2^63).
        shape: Rank R, width N of the layer's input; positive.
        bound: Values are between -bound and bound; rounded to float32 first.

    Returns:
        Float32 [R, N] on the CPU.

    Cost: 0.04 s of one core for a million values, most of it for the hash.
    """
    rank, width = shape
    key = _DOMAIN + seed.to_bytes(8, "little") + name.encode()
    stream = hashlib.shake_256(key).digest(4 * rank * width)
    k = np.frombuffer(stream, dtype="<u4") >> (32 - _BITS)
    odd = (2 * k.astype(np.int64) + 1 - (1 << _BITS)).astype(np.float32)
    values = odd * np.float32(2.0**-_BITS) * np.float32(bound)
    return torch.from_numpy(values.reshape(rank, width))


def bound_of(width: int) -> float:
    """The bound for a layer with inputs of that width: 1 / sqrt(N), so that A x keeps its size.

    Source: He et al. 2015, arXiv:1502.01852, as Hu et al.'s code starts A
        (`kaiming_uniform_` with a = sqrt(5)).
    """
    return 1 / math.sqrt(width)
