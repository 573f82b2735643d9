"""The hash of what a model is trained on top of: its frozen parameters, with their values.

The architecture hash has never values, since they change with every round. Those that do not
change have to be the same at every peer, or a round of one means nothing to the other: their hash
goes into the swarm id. Knows nothing of fragments or swarms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

PIECE_BYTES = 16 * 1024 * 1024
"""Most that is copied at once, so that hashing needs no memory of its own."""


def hash_base(named: Iterable[tuple[str, Tensor]]) -> bytes:
    """SHA-256 over names, shapes, dtypes and bytes of tensors.

    Args:
        named: Names, each once, with tensors of any dense dtype on any device. The order does
            not count.

    Returns:
        32 bytes; none without tensors, so that a model without them is what it always was.

    Raises:
        ValueError: a tensor has no values (it is on the `meta` device), or is not dense.

    Cost: one pass over the bytes; on an accelerator they are copied piece by piece.
    """
    hasher, is_empty = hashlib.sha256(b"neuroswarm v1 base\0"), True
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        is_empty = False
        head = json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode()
        hasher.update(len(head).to_bytes(8, "little") + head)
        for piece in _pieces(name, tensor):
            hasher.update(piece)
    return b"" if is_empty else hasher.digest()


def frozen_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that are not trained, each once, with their names."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and not is_lazy(parameter):
            yield name, parameter


@torch.no_grad()
def _pieces(name: str, tensor: Tensor) -> Iterator[memoryview]:
    if tensor.is_meta or tensor.layout != torch.strided:
        raise ValueError(f"frozen parameter without values of its own: {name} ({tensor.layout})")
    flat = tensor.detach().reshape(-1)
    step = max(1, PIECE_BYTES // tensor.element_size())
    for start in range(0, flat.numel(), step):
        piece = flat[start : start + step].cpu().contiguous()
        yield piece.view(torch.uint8).numpy().data
