"""Dense int4 codes with one scale a block: the payload of one fragment.

Knows bytes and tensors; refuses to know whose they are and what is done with them.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuroswarm.codecs.payload import MAX_SCALE, MIN_SCALE
from neuroswarm.errors import NonFiniteValues, SchemaMismatch

MAX_CODE = 7
MAX_BLOCK = 1024
"""Products of codes summed over a block stay below 2^24, so a float32 sum of them is exact."""

KIND = "int4"


@dataclass(frozen=True, eq=False)
class LowBit:
    """Decoded form of one fragment's int4 payload; the tensors are never written.

    Args:
        codes: int8, shape [number of blocks, block], values -7 to 7, padding 0.
        scales: float32, shape [number of blocks], between `MIN_SCALE` and `MAX_SCALE`.
        num_params: N, how many of the codes are parameters.
    """

    codes: Tensor
    scales: Tensor
    num_params: int

    @property
    def kind(self) -> str:
        """Name of the codec."""
        return KIND

    @property
    def block(self) -> int:
        """Codes that share a scale."""
        return self.codes.shape[1]

    @property
    def num_blocks(self) -> int:
        """Blocks, the last of which may be padded."""
        return self.codes.shape[0]

    def block_codes(self, start: int, stop: int) -> Tensor:
        """Codes of blocks `start` to `stop` - 1, a view. int8, shape [stop - start, block]."""
        return self.codes[start:stop]

    def to_tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; not copies."""
        return {"codes": self.codes, "scales": self.scales}

    def decode(self) -> Tensor:
        """The values: code times scale. float32, shape [N], no negative zero; a new tensor."""
        values = self.codes.to(torch.float32)
        values.mul_(self.scales[:, None]).add_(0.0)
        return values.view(-1)[: self.num_params]


def encode_int4(values_N: Tensor, block: int) -> LowBit:
    """Round values to the nearest of 15 multiples of their block's scale.

    The scale of a block is its largest magnitude over 7, at least `MIN_SCALE`; smaller
    values become 0 and are left to the caller's error feedback.

    Args:
        values_N: Shape [N], N >= 1, any float dtype, on the CPU; is not written.
        block: Values that share a scale; even, 2 to 1024.

    Raises:
        ValueError: A value is not finite or above 7 x `MAX_SCALE`, or a size is illegal.

    Cost: a few passes over the values.

    Source: Dettmers et al. 2022, arXiv:2110.02861 (block-wise absolute-maximum scaling).
        Differs: a linear grid of 15 values instead of a dynamic one of 256.
    """
    if values_N.ndim != 1 or values_N.numel() == 0:
        raise ValueError(f"values: shape {tuple(values_N.shape)} (needs one dimension, not empty)")
    num_params = values_N.numel()
    num_blocks = count_blocks(num_params, block)
    padded = torch.zeros(num_blocks * block, dtype=torch.float32)
    padded[:num_params].copy_(values_N)
    blocks = padded.view(num_blocks, block)
    peaks = blocks.abs().amax(dim=1)
    top = float(peaks.max())
    if not math.isfinite(top) or top > MAX_CODE * MAX_SCALE:
        raise ValueError(f"values out of range: {top} (limit {MAX_CODE * MAX_SCALE:g})")
    scales = (peaks / MAX_CODE).clamp_(min=MIN_SCALE, max=MAX_SCALE)
    codes = (blocks / scales[:, None]).round_().clamp_(-MAX_CODE, MAX_CODE).to(torch.int8)
    return LowBit(codes, scales, num_params)


def count_blocks(num_params: int, block: int) -> int:
    """Blocks that hold `num_params` values; ValueError if a size is illegal."""
    if not 2 <= block <= MAX_BLOCK or block % 2:
        raise ValueError(f"block: {block} (even, 2 to {MAX_BLOCK})")
    if num_params < 1:
        raise ValueError(f"number of parameters: {num_params} (at least 1)")
    return -(-num_params // block)


def packed_size(num_params: int, block: int) -> int:
    """Bytes of a packed payload: half a byte a code and four a block."""
    return count_blocks(num_params, block) * (block // 2 + 4)


def pack(payload: LowBit) -> bytes:
    """The wire form: two codes a byte (the first in the low half), then little-endian scales."""
    nibbles = payload.codes.numpy().reshape(-1, 2).view(np.uint8) & 15
    packed = nibbles[:, 0] | (nibbles[:, 1] << 4)
    return packed.tobytes() + payload.scales.numpy().astype("<f4", copy=False).tobytes()


def unpack(data: bytes, num_params: int, block: int) -> LowBit:
    """Read a wire form; the bytes may come from anyone.

    Args:
        data: The packed payload.
        num_params: N of the fragment, from the architecture.
        block: From the swarm's rules.

    Raises:
        SchemaMismatch: Wrong size, a code of -8, padding that is not 0, or an illegal scale.

    Cost: the size is checked before memory is taken; then about 6 bytes a parameter.
    """
    expected = packed_size(num_params, block)
    if len(data) != expected:
        raise SchemaMismatch(f"payload: {len(data)} bytes (needs {expected})")
    num_blocks = count_blocks(num_params, block)
    raw = np.frombuffer(data, dtype=np.uint8, count=num_blocks * block // 2)
    nibbles = np.empty((raw.size, 2), dtype=np.uint8)
    np.bitwise_and(raw, 15, out=nibbles[:, 0])
    np.right_shift(raw, 4, out=nibbles[:, 1])
    if (nibbles == 8).any():
        raise SchemaMismatch("payload holds a code of -8 (-7 to 7 are legal)")
    nibbles ^= 8
    codes = nibbles.view(np.int8)
    codes -= 8
    if codes.reshape(-1)[num_params:].any():
        raise SchemaMismatch("payload: padding codes are not 0")
    scales = np.frombuffer(data, dtype="<f4", offset=raw.size).astype(np.float32)
    if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
        if not np.isfinite(scales).all():
            raise NonFiniteValues("payload holds a scale that is infinite or not a number")
        raise SchemaMismatch(f"payload holds a scale outside {MIN_SCALE:g} to {MAX_SCALE:g}")
    return LowBit(
        torch.from_numpy(codes.reshape(num_blocks, block)), torch.from_numpy(scales), num_params
    )


def from_tensors(tensors: Mapping[str, Tensor], num_params: int) -> LowBit:
    """The payload whose `to_tensors` this was, whatever its block.

    Raises:
        KeyError: A tensor is missing.
        ValueError: The tensors do not fit one another or `num_params`.
    """
    codes, scales = tensors["codes"], tensors["scales"]
    fits = codes.ndim == 2 and codes.dtype == torch.int8 and scales.dtype == torch.float32
    if not fits or scales.shape != (count_blocks(num_params, codes.shape[1]),):
        raise ValueError(f"int4 payload does not fit {num_params} parameters")
    if codes.shape[0] != scales.shape[0]:
        raise ValueError(f"int4 payload: {codes.shape[0]} blocks, {scales.shape[0]} scales")
    return LowBit(codes, scales, num_params)
