"""One contribution as its node remembers it, and how a verdict on it is booked.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
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

    def book(self, index: int, sign: float, shift: Tensor, residual: Tensor) -> None:
        """Take a fragment of it out of the local parameters into the residual, or back.

        Args:
            index: Of the fragment.
            sign: 1, or -1 to put it back.
            shift: What is to be added to x, float32, shape [N]; changed in place.
            residual: e, likewise.
        """
        delta = self.deltas[index]
        signed = delta * sign
        shift += signed
        torch.sub(delta, self.payloads[index].decode(), out=signed)
        residual += signed.mul_(sign)
