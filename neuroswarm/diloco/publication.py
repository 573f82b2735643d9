"""One contribution as its node remembers it, and how a verdict on it is booked.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from neuroswarm.codecs.payload import Payload


@dataclass(frozen=True, eq=False)
class Publication:
    """A contribution of this node; the tensors are never written.

    Args:
        id: Contribution id, 32 bytes.
        round: Round that it was published for.
        deltas: d of each fragment, float32, shape [N].
        payloads: Q((1 - b)(d + e)) of each fragment, of any codec; c is what they decode to.
    """

    id: bytes
    round: int
    deltas: tuple[Tensor, ...]
    payloads: tuple[Payload, ...]

    def book(self, sign: float, shift: list[Tensor], residual: list[Tensor]) -> None:
        """Take it out of the local parameters into the residual (sign 1), or back (-1)."""
        pairs = zip(self.deltas, self.payloads, strict=True)
        for k, (delta, payload) in enumerate(pairs):
            shift[k] += delta * sign
            residual[k] += (delta - payload.decode()) * sign
