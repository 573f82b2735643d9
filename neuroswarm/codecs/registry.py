"""Codecs by the names that the swarm's rules use.

Knows which codecs exist; the arithmetic is in their own modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from neuroswarm.codecs import lowbit
from neuroswarm.codecs.lowbit import LowBit
from neuroswarm.errors import ConfigError


class Codec(Protocol):
    """Between a fragment's values and the bytes that travel."""

    def encode(self, values_N: Tensor) -> LowBit:
        """Quantise values of shape [N]; ValueError if one is not finite."""
        ...

    def pack(self, payload: LowBit) -> bytes:
        """The wire form of a payload."""
        ...

    def unpack(self, data: bytes, num_params: int) -> LowBit:
        """Read a wire form; SchemaMismatch if it is malformed."""
        ...

    def packed_size(self, num_params: int) -> int:
        """Bytes of the wire form of N values."""
        ...


@dataclass(frozen=True)
class Int4:
    """Dense int4 with a scale for each `block` values."""

    block: int = 256

    def encode(self, values_N: Tensor) -> LowBit:
        """Quantise values of shape [N]; ValueError if one is not finite."""
        return lowbit.encode_int4(values_N, self.block)

    def pack(self, payload: LowBit) -> bytes:
        """The wire form of a payload."""
        return lowbit.pack(payload)

    def unpack(self, data: bytes, num_params: int) -> LowBit:
        """Read a wire form; SchemaMismatch if it is malformed."""
        return lowbit.unpack(data, num_params, self.block)

    def packed_size(self, num_params: int) -> int:
        """Bytes of the wire form of N values."""
        return lowbit.packed_size(num_params, self.block)


CODEC_NAMES = ("int4",)


def get_codec(name: str, block: int = 256) -> Codec:
    """The codec of that name; ConfigError that names the legal ones if there is none."""
    if name != "int4":
        raise ConfigError(f"unknown codec: {name!r} (one of {', '.join(CODEC_NAMES)})")
    return Int4(block)
