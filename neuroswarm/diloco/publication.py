"""One contribution as its node remembers it, and how a verdict on it is booked.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroswarm.codecs.lowbit import KIND as INT4
from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.registry import payload_of
from neuroswarm.errors import CheckpointError
from neuroswarm.hardware import large_tensors


@dataclass(frozen=True, slots=True)
class LateTensor:
    """Values kept elsewhere, float32, shape [N]."""

    num_values: int
    load: Callable[[], Tensor]
    """Reads them; may raise CheckpointError."""
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> torch.Size:
        """[N]."""
        return torch.Size([self.num_values])

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return 4 * self.num_values


@dataclass(eq=False)
class Publication:
    """A contribution of this node; the tensors are never written.

    Args:
        id: Contribution id, 32 bytes.
        round: Round that it was published for.
        deltas: d of each fragment, float32, shape [N]; in memory, or read when asked for.
        payloads: Q((1 - b)(d + e)) of each fragment, of any codec; c is what they decode to.
    """

    id: bytes
    round: int
    deltas: Sequence[Tensor]
    payloads: tuple[Payload, ...]

    @property
    def is_in_memory(self) -> bool:
        """Whether its d is."""
        return isinstance(self.deltas, tuple)

    def put_away(self, deltas: Sequence[Tensor]) -> None:
        """Go on with the same d elsewhere, so that its memory is free. Any thread."""
        self.deltas = deltas

    def delta(self, index: int) -> Tensor:
        """The d of a fragment; c if d was kept elsewhere and is lost.

        The ledger's law holds for any d: what is lost is only which part of c waits in the
        residual.
        """
        try:
            return self.deltas[index]
        except CheckpointError:
            return self.payloads[index].decode()

    def late_delta(self, index: int) -> Tensor | LateTensor:
        """The d of a fragment, or how to come by it if it is not in memory."""
        if self.is_in_memory:
            return self.deltas[index]
        return LateTensor(self.payloads[index].num_params, lambda: self.delta(index))

    def book(self, index: int, sign: float, shift: Tensor, residual: Tensor) -> None:
        """Take a fragment of it out of the local parameters into the residual, or back.

        Args:
            index: Of the fragment.
            sign: 1, or -1 to put it back.
            shift: What is to be added to x, float32, shape [N]; changed in place.
            residual: e, likewise.
        """
        delta = self.delta(index)
        signed = torch.mul(delta, sign, out=large_tensors.empty(delta.numel()))
        shift += signed
        torch.sub(delta, self.payloads[index].decode(), out=signed)
        residual += signed.mul_(sign)


def read_publication(
    tensors: Mapping[str, Tensor], entry: Mapping[str, Any], index: int, num_fragments: int
) -> Publication:
    """A publication from a checkpoint.

    Args:
        tensors: As `Ledger.to_tensors` named them; taken over.
        entry: What was listed of it.
        index: Its number in the list.
        num_fragments: Of the architecture.

    Raises:
        KeyError: Something is missing.
        ValueError: It does not fit.
        ConfigError: It is of an unknown codec.
    """
    deltas = []
    payloads = []
    # Checkpoints of version 0.1.0 do not name the codec.
    kinds = entry.get("codecs", [INT4] * num_fragments)
    for k in range(num_fragments):
        prefix = f"publication.{index}.{k}."
        delta = tensors[prefix + "delta"]
        named = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        deltas.append(delta)
        payloads.append(payload_of(kinds[k], named, delta.numel()))
    return Publication(
        bytes.fromhex(entry["id"]), int(entry["round"]), tuple(deltas), tuple(payloads)
    )
