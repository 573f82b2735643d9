"""Codecs by the names that the swarm's rules use.

Knows which codecs exist; the arithmetic is in their own modules.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from neuroswarm.codecs import lowbit, sparse
from neuroswarm.codecs.lowbit import LowBit
from neuroswarm.codecs.payload import Buffer, Payload
from neuroswarm.codecs.sparse import Layout, Sparse
from neuroswarm.errors import ConfigError

CODEC_NAMES = (lowbit.KIND, sparse.KIND)


class CodecRules(Protocol):
    """The part of the swarm's rules that decides how values are coded."""

    @property
    def codec(self) -> str:
        """`int4` or `topk`."""
        ...

    @property
    def codec_block(self) -> int:
        """Values that share a scale in `int4`."""
        ...

    @property
    def topk_chunk(self) -> int:
        """Values that share a scale in `topk`."""
        ...

    @property
    def topk_kept(self) -> int:
        """Values kept of a chunk in `topk`."""
        ...


class Codec(Protocol):
    """Between a fragment's values and the bytes that travel."""

    @property
    def name(self) -> str:
        """Name in the rules."""
        ...

    def encode(self, values_N: Tensor) -> Payload:
        """Quantise values of shape [N]; ValueError if one is not finite."""
        ...

    def pack(self, payload: Payload) -> bytes:
        """The wire form of a payload of this codec; ValueError for another's."""
        ...

    def unpack(self, data: Buffer, num_params: int) -> Payload:
        """Read a wire form, which must not be written later; SchemaMismatch if malformed."""
        ...

    def packed_size(self, num_params: int) -> int:
        """Bytes of the wire form of N values."""
        ...

    def fits(self, payload: Payload, num_params: int) -> bool:
        """Whether this codec can have made that payload for N values."""
        ...

    def from_tensors(self, tensors: Mapping[str, Tensor], num_params: int) -> Payload:
        """Read `Payload.to_tensors` of this codec, whatever its block.

        Raises:
            KeyError: A tensor is missing.
            ValueError: The tensors do not fit.
        """
        ...


@dataclass(frozen=True)
class Int4:
    """Dense int4 with a scale for each `block` values."""

    block: int = 256

    @property
    def name(self) -> str:
        """Name in the rules."""
        return lowbit.KIND

    def encode(self, values_N: Tensor) -> LowBit:
        """Quantise values of shape [N]; ValueError if one is not finite."""
        return lowbit.encode_int4(values_N, self.block)

    def pack(self, payload: Payload) -> bytes:
        """The wire form; ValueError for another codec's payload."""
        if not isinstance(payload, LowBit):
            raise ValueError(f"payload of codec {payload.kind} (needs {self.name})")
        return lowbit.pack(payload)

    def unpack(self, data: Buffer, num_params: int) -> LowBit:
        """Read a wire form; SchemaMismatch if it is malformed."""
        return lowbit.unpack(data, num_params, self.block)

    def packed_size(self, num_params: int) -> int:
        """Bytes of the wire form of N values."""
        return lowbit.packed_size(num_params, self.block)

    def fits(self, payload: Payload, num_params: int) -> bool:
        """Whether this codec can have made that payload for N values."""
        form = (payload.kind, payload.block, payload.num_params)
        return form == (self.name, self.block, num_params)

    def from_tensors(self, tensors: Mapping[str, Tensor], num_params: int) -> LowBit:
        """Read `LowBit.to_tensors`; KeyError or ValueError if it does not fit."""
        return lowbit.from_tensors(tensors, num_params)


@dataclass(frozen=True)
class TopK:
    """The largest values of each chunk in two bits each."""

    layout: Layout

    @property
    def name(self) -> str:
        """Name in the rules."""
        return sparse.KIND

    def encode(self, values_N: Tensor) -> Sparse:
        """Quantise values of shape [N]; ValueError if one is not finite."""
        return sparse.encode_topk(values_N, self.layout)

    def pack(self, payload: Payload) -> bytes:
        """The wire form; ValueError for another codec's payload."""
        if not isinstance(payload, Sparse):
            raise ValueError(f"payload of codec {payload.kind} (needs {self.name})")
        return sparse.pack(payload)

    def unpack(self, data: Buffer, num_params: int) -> Sparse:
        """Read a wire form; SchemaMismatch if it is malformed."""
        return sparse.unpack(data, num_params, self.layout)

    def packed_size(self, num_params: int) -> int:
        """Bytes of the wire form of N values."""
        return self.layout.packed_size(num_params)

    def fits(self, payload: Payload, num_params: int) -> bool:
        """Whether this codec can have made that payload for N values."""
        if not isinstance(payload, Sparse) or payload.num_params != num_params:
            return False
        return payload.layout == self.layout

    def from_tensors(self, tensors: Mapping[str, Tensor], num_params: int) -> Sparse:
        """Read `Sparse.to_tensors`; KeyError or ValueError if it does not fit."""
        return sparse.from_tensors(tensors, num_params)


def codec_of(rules: CodecRules) -> Codec:
    """The codec of a swarm's rules; ConfigError that names the legal ones if there is none."""
    if rules.codec == lowbit.KIND:
        return Int4(rules.codec_block)
    if rules.codec == sparse.KIND:
        return TopK(Layout(rules.topk_chunk, rules.topk_kept))
    raise _unknown(rules.codec)


def payload_of(kind: str, tensors: Mapping[str, Tensor], num_params: int) -> Payload:
    """The payload of any codec from a checkpoint.

    Args:
        kind: `Payload.kind` of what was written.
        tensors: `Payload.to_tensors` of it.
        num_params: N.

    Raises:
        ConfigError: There is no such codec.
        KeyError: A tensor is missing.
        ValueError: The tensors do not fit.
    """
    if kind == lowbit.KIND:
        return lowbit.from_tensors(tensors, num_params)
    if kind == sparse.KIND:
        return sparse.from_tensors(tensors, num_params)
    raise _unknown(kind)


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"unknown codec: {name!r} (one of {', '.join(CODEC_NAMES)})")
