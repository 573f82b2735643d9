"""What every codec's decoded payload can do, so that aggregation need not know which it is.

Knows shapes; refuses to know bytes.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from torch import Tensor

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What a wire form is read from."""

MIN_SCALE = 2.0**-64
MAX_SCALE = 2.0**64
"""Legal scales. Far inside float32, so that no sum or product of decoded values overflows or
becomes subnormal, whatever a hostile peer sends and whatever the denormal mode of the thread."""


class Payload(Protocol):
    """One fragment's coded values: small whole numbers in blocks that share a scale.

    The value of a parameter is its code times its block's scale. Products of codes summed over
    a block stay below 2^24, so that a float32 sum of them is exact in any order. The tensors
    are never written.
    """

    @property
    def kind(self) -> str:
        """Name of the codec that made it."""
        ...

    @property
    def num_params(self) -> int:
        """N, how many of the codes are parameters."""
        ...

    @property
    def block(self) -> int:
        """Codes that share a scale."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks, the last of which may be padded with codes of 0."""
        ...

    @property
    def scales(self) -> Tensor:
        """float32, shape [number of blocks], between `MIN_SCALE` and `MAX_SCALE`."""
        ...

    def block_codes(self, start: int, stop: int) -> Tensor:
        """Codes of blocks `start` to `stop` - 1, dense. int8, shape [stop - start, block]."""
        ...

    def decode(self) -> Tensor:
        """The values: code times scale. float32, shape [N], no negative zero; a new tensor."""
        ...

    def to_tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; the registry reads it back. Copies, or never written."""
        ...
