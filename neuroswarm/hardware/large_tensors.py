"""Large tensors in memory of their own, which goes back to the system as soon as they do.

The C library would put blocks of up to 32 MiB beside small ones, and keep them when they are free:
a node of which the fragments are that large would take twice the memory that it uses.

Legend: N values.
"""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

LEAST_BYTES = 256 * 1024
"""Smaller ones are left to the C library."""


def empty(num_values: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of shape [N] on the CPU, whatever is in it."""
    size = num_values * dtype.itemsize
    if size < LEAST_BYTES or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.empty(num_values, dtype=dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype)


def copy(values: Tensor) -> Tensor:
    """A copy on the CPU, contiguous and detached; of the same shape and dtype."""
    result = empty(values.numel(), values.dtype).view(values.shape)
    return result.copy_(values.detach())
