"""Dense int4 codes with one scale a block: the payload of one fragment.

Knows bytes and tensors; refuses to know whose they are and what is done with them.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroswarm.codecs.payload import MAX_SCALE, MIN_SCALE, Buffer
from neuroswarm.errors import NonFiniteValues, SchemaMismatch
from neuroswarm.hardware import large_tensors

MAX_CODE = 7
MAX_BLOCK = 1024
"""Products of codes summed over a block stay below 2^24, so a float32 sum of them is exact."""

KIND = "int4"


_CODES = np.array(
    [[((byte & 15) ^ 8) - 8, ((byte >> 4) ^ 8) - 8] for byte in range(256)], dtype=np.int8
)
"""The two codes of each byte, the low half first."""

_PAIRS = _CODES.view(np.uint16).reshape(256)
"""The same as one number a byte: looked up ten times as fast."""

_IS_ILLEGAL = (_CODES == -8).any(axis=1)

_AT_ONCE = 1 << 20
"""About how many codes are worked on at once; bounds memory."""


@dataclass(frozen=True, eq=False)
class LowBit:
    """One fragment's int4 payload as it travels: half a byte a parameter. Never written.

    Args:
        packed: uint8, shape [number of blocks, block / 2], two codes from -7 to 7 a byte, the
            first in the low half; padding 0. May be a window into what was received.
        scales: float32, shape [number of blocks], between `MIN_SCALE` and `MAX_SCALE`.
        num_params: N, how many of the codes are parameters.
    """

    packed: NDArray[np.uint8]
    scales: Tensor
    num_params: int

    @classmethod
    def from_codes(cls, codes: Tensor, scales: Tensor, num_params: int) -> LowBit:
        """Pack int8 codes from -7 to 7, shape [number of blocks, block]."""
        packed = np.empty((codes.shape[0], codes.shape[1] // 2), dtype=np.uint8)
        _pack_into(packed, codes)
        return cls(packed, scales, num_params)

    @property
    def kind(self) -> str:
        """Name of the codec."""
        return KIND

    @property
    def block(self) -> int:
        """Codes that share a scale."""
        return 2 * int(self.packed.shape[1])

    @property
    def num_blocks(self) -> int:
        """Blocks, the last of which may be padded."""
        return int(self.packed.shape[0])

    @property
    def codes(self) -> Tensor:
        """All codes, int8, shape [number of blocks, block]; a new tensor."""
        return self.block_codes(0, self.num_blocks)

    def block_codes(self, start: int, stop: int) -> Tensor:
        """Codes of blocks `start` to `stop` - 1. int8, shape [stop - start, block]."""
        return torch.from_numpy(_PAIRS.take(self.packed[start:stop]).view(np.int8))

    def to_tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; a copy."""
        return {"packed": torch.from_numpy(self.packed.copy()), "scales": self.scales}

    def decode(self) -> Tensor:
        """The values: code times scale. float32, shape [N], no negative zero; a new tensor."""
        values = large_tensors.empty(self.num_blocks * self.block).view(-1, self.block)
        for start, stop in _steps(self.num_blocks, self.block):
            part = values[start:stop].copy_(self.block_codes(start, stop))
            part.mul_(self.scales[start:stop, None]).add_(0.0)
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

    Cost: a few passes over the values, of which few are worked on at once.

    Source: Dettmers et al. 2022, arXiv:2110.02861 (block-wise absolute-maximum scaling).
        Differs: a linear grid of 15 values instead of a dynamic one of 256.
    """
    if values_N.ndim != 1 or values_N.numel() == 0:
        raise ValueError(f"values: shape {tuple(values_N.shape)} (needs one dimension, not empty)")
    num_params = values_N.numel()
    num_blocks = count_blocks(num_params, block)
    packed = large_tensors.empty(num_blocks * block // 2, torch.uint8).numpy()
    packed = packed.reshape(num_blocks, block // 2)
    scales = torch.empty(num_blocks, dtype=torch.float32)
    for start, stop in _steps(num_blocks, block):
        blocks = _blocks(values_N, start, stop, block)
        peaks = blocks.abs().amax(dim=1)
        top = float(peaks.max())
        if not math.isfinite(top) or top > MAX_CODE * MAX_SCALE:
            raise ValueError(f"values out of range: {top} (limit {MAX_CODE * MAX_SCALE:g})")
        part = (peaks / MAX_CODE).clamp_(min=MIN_SCALE, max=MAX_SCALE)
        scales[start:stop] = part
        codes = (blocks / part[:, None]).round_().clamp_(-MAX_CODE, MAX_CODE).to(torch.int8)
        _pack_into(packed[start:stop], codes)
    return LowBit(packed, scales, num_params)


def _steps(num_blocks: int, block: int) -> Iterator[tuple[int, int]]:
    """Ranges of blocks that are worked on at once."""
    step = max(1, _AT_ONCE // block)
    return ((start, min(start + step, num_blocks)) for start in range(0, num_blocks, step))


def _blocks(values_N: Tensor, start: int, stop: int, block: int) -> Tensor:
    """Values of some blocks, the last of all padded. float32, shape [stop - start, block]."""
    values = values_N[start * block : stop * block].to(torch.float32)
    if values.numel() < (stop - start) * block:
        padded = torch.zeros((stop - start) * block, dtype=torch.float32)
        padded[: values.numel()].copy_(values)
        values = padded
    return values.view(stop - start, block)


def _pack_into(packed: NDArray[np.uint8], codes: Tensor) -> None:
    for start, stop in _steps(*codes.shape):
        nibbles = codes[start:stop].numpy().reshape(stop - start, -1, 2).view(np.uint8)
        np.left_shift(nibbles[:, :, 1], 4, out=packed[start:stop])
        packed[start:stop] |= nibbles[:, :, 0] & 15


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
    scales = payload.scales.numpy().astype("<f4", copy=False)
    return b"".join((payload.packed.data, scales.data))


def unpack(data: Buffer, num_params: int, block: int) -> LowBit:
    """Read a wire form; the bytes may come from anyone.

    Args:
        data: The packed payload; the result is a window into it.
        num_params: N of the fragment, from the architecture.
        block: From the swarm's rules.

    Raises:
        SchemaMismatch: Wrong size, a code of -8, padding that is not 0, or an illegal scale.

    Cost: a pass; memory for the scales alone.
    """
    expected, found = packed_size(num_params, block), memoryview(data).nbytes
    if found != expected:
        raise SchemaMismatch(f"payload: {found} bytes (needs {expected})")
    num_blocks = count_blocks(num_params, block)
    raw = np.frombuffer(data, dtype=np.uint8, count=num_blocks * block // 2)
    for start in range(0, raw.size, _AT_ONCE):
        if _IS_ILLEGAL.take(raw[start : start + _AT_ONCE]).any():
            raise SchemaMismatch("payload holds a code of -8 (-7 to 7 are legal)")
    if _CODES[raw[num_params // 2 :]].reshape(-1)[num_params % 2 :].any():
        raise SchemaMismatch("payload: padding codes are not 0")
    scales = np.frombuffer(data, dtype="<f4", offset=raw.size).astype(np.float32)
    if not ((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all():
        if not np.isfinite(scales).all():
            raise NonFiniteValues("payload holds a scale that is infinite or not a number")
        raise SchemaMismatch(f"payload holds a scale outside {MIN_SCALE:g} to {MAX_SCALE:g}")
    return LowBit(raw.reshape(num_blocks, -1), torch.from_numpy(scales), num_params)


def from_tensors(tensors: Mapping[str, Tensor], num_params: int) -> LowBit:
    """The payload whose `to_tensors` this was, whatever its block.

    Raises:
        KeyError: A tensor is missing.
        ValueError: The tensors do not fit one another or `num_params`.
    """
    packed, scales = tensors["packed"], tensors["scales"]
    fits = packed.ndim == 2 and packed.dtype == torch.uint8 and scales.dtype == torch.float32
    if not fits or scales.shape != (count_blocks(num_params, 2 * packed.shape[1]),):
        raise ValueError(f"int4 payload does not fit {num_params} parameters")
    if packed.shape[0] != scales.shape[0]:
        raise ValueError(f"int4 payload: {packed.shape[0]} blocks, {scales.shape[0]} scales")
    return LowBit(packed.numpy(), scales, num_params)
