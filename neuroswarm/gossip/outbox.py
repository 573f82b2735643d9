"""What waits to be pushed to one peer: bounded, batched, sent again when the push fails.

Knows nothing of how a push is made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from neuroswarm.rounds.statements import Proof
from neuroswarm.wire import limits
from neuroswarm.wire.signed import SIGNED_OVERHEAD_BYTES, Signed

MAX_WAITING = 1024
MAX_TRIES = 4


@dataclass(slots=True)
class Parcel:
    """One statement or proof on its way to one peer."""

    content: Signed | Proof
    hops_left: int = 0
    inline: bytes | None = None
    """Payload that travels along, if it is small."""
    num_tries: int = 0


class Outbox:
    """First in, first out; when it is full the oldest parcel is dropped and counted."""

    def __init__(self) -> None:
        self._waiting: deque[Parcel] = deque()
        self.num_dropped = 0
        self.is_draining = False
        """Whether a task is sending from it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, parcel: Parcel) -> None:
        """Add a parcel at the end."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.num_dropped += 1
        self._waiting.append(parcel)

    def take_batch(self) -> list[Parcel]:
        """Take as many parcels as one push may carry, oldest first."""
        batch: list[Parcel] = []
        num_inline = num_proofs = size = 0
        while self._waiting and len(batch) < limits.MAX_PUSH_MESSAGES:
            parcel = self._waiting[0]
            is_proof = isinstance(parcel.content, Proof)
            size += _size(parcel)
            num_inline += parcel.inline is not None
            num_proofs += is_proof
            full = num_inline > limits.MAX_PUSH_INLINE or num_proofs > limits.MAX_PUSH_PROOFS
            if batch and (full or size > limits.MAX_MESSAGE_BYTES // 2):
                break
            batch.append(self._waiting.popleft())
        return batch

    def put_back(self, batch: list[Parcel]) -> None:
        """Return a batch whose push failed; parcels that failed too often are dropped."""
        for parcel in reversed(batch):
            parcel.num_tries += 1
            if parcel.num_tries >= MAX_TRIES or len(self._waiting) >= MAX_WAITING:
                self.num_dropped += 1
            else:
                self._waiting.appendleft(parcel)


def _size(parcel: Parcel) -> int:
    content = parcel.content
    statements = (content.first, content.second) if isinstance(content, Proof) else (content,)
    return sum(len(s.body) + SIGNED_OVERHEAD_BYTES for s in statements) + len(parcel.inline or b"")
