"""Copies of many tensors in one piece of memory: as fast as a copy of the same bytes.

Knows nothing of what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from neuroswarm.hardware import large_tensors


@torch.no_grad()
def copy_together(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors on the CPU, those of one dtype as windows of one block of memory.

    A copy for each tensor costs microseconds for each of them, and a model has hundreds.

    Args:
        named: Any shapes and dtypes, on any devices; not written meanwhile.

    Returns:
        Contiguous tensors of the same shapes and dtypes, detached.

    Cost: one pass.
    """
    by_dtype: dict[torch.dtype, list[str]] = {}
    for name, tensor in named.items():
        by_dtype.setdefault(tensor.dtype, []).append(name)
    copies: dict[str, Tensor] = {}
    for names in by_dtype.values():
        flat = concatenate([named[name] for name in names])
        parts = torch.split(flat, [named[name].numel() for name in names])
        pairs = zip(names, parts, strict=True)
        copies |= {name: part.view(named[name].shape) for name, part in pairs}
    return {name: copies[name] for name in named}


@torch.no_grad()
def concatenate(tensors: Sequence[Tensor]) -> Tensor:
    """All elements one after the other: shape [N], CPU, always a copy; one dtype, any devices."""
    flat = large_tensors.empty(sum(tensor.numel() for tensor in tensors), tensors[0].dtype)
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors], out=flat)
    start = 0
    for tensor in tensors:
        flat[start : start + tensor.numel()].copy_(tensor.detach().reshape(-1))
        start += tensor.numel()
    return flat
