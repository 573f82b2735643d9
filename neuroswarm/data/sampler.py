"""Which windows of the tokens a node reads, as a pure function of seed, share and batch number.

Refuses to know where the tokens come from or what is done with a batch.

Shapes: B = windows in a batch, T = tokens in a window.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from neuroswarm.data.grid import Grid, Part, Starts
from neuroswarm.data.share import OFFSET_RANGE, Share
from neuroswarm.data.shuffle import Shuffle
from neuroswarm.data.tokens import Tokens

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each int64 [B, T]; targets are the inputs one token later."""


@runtime_checkable
class ShareAware(Protocol):
    """Batches that differ by what the others read: optional, besides `train` and `held_out`."""

    def take_share(self, share: Share) -> None:
        """Read this share from now on; `train(0)` is its first batch."""
        ...

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that a share has of what is never trained on."""
        ...


@dataclass(frozen=True, slots=True)
class _Lap:
    """One way through a part: the keys that order it."""

    number: int
    key: bytes
    phase: int
    order: Shuffle


class WindowSampler:
    """Batches of windows from one text.

    A round cuts the training ranges into windows side by side, from a phase of its own on, and
    shuffles the windows of each range. All that depends on the seed and the round alone. Of the
    windows, numbered through all ranges, slot i of M reads every Mth, in a shuffled order: so
    slots read different windows, no window is read twice before the slot's part is at its end,
    and each slot has its like part of every range. Then its next lap begins: other phase, other
    shuffles. Rounds draw independently of each other.

    Windows side by side share one token: the last target of one is the first input of the next.
    No token is a target twice in a lap. What is less than a window at the edges of a range is
    left out, elsewhere in each round; a range of less than two windows gives one.

    With fewer windows than slots, several slots read the same one.

    A window's slot depends on the whole text (`tokens.layout`), whether it is here or not. Where
    only some ranges are here (`tokens.split`), a node reads its slot's windows in those; where
    its slot has none there, it reads whatever is there.

    Held-out windows are spread evenly over the held-out ranges that are here.

    Args:
        tokens: The text.
        context: T.
        batch_size: B.
        seed: Of the swarm, 0 to 2**64 - 1.

    Raises:
        DataError: the text is too short.

    Cost: a few dozen hashes a window, and memory for the ranges, not for the windows.
    """

    def __init__(self, tokens: Tokens, *, context: int, batch_size: int, seed: int) -> None:
        if batch_size < 1 or context < 1:
            raise ValueError(f"batch {batch_size} x {context} tokens (both at least 1)")
        self._tokens = tokens
        self._context = context
        self._batch_size = batch_size
        self._seed = seed
        self.split = tokens.split(context + 1)
        self._held_out = Starts(self.split.held_out, context + 1)
        self._grid = Grid(tokens.layout(context + 1).train, context)
        self._spans = self._grid.spans(self.split.train)
        self.take_share(Share())

    @property
    def lap_windows(self) -> int:
        """Windows of the share's part that are here: none is read twice within so many."""
        return self._part.count

    def take_share(self, share: Share) -> None:
        """Read this share from now on; `train(0)` is its first batch."""
        self._share = share
        self._key = _hash(struct.pack("<QQ", self._seed, share.round), b"round")
        slots = min(share.num_slots, self._grid.count)
        slot = (share.slot + int.from_bytes(self._key[:8], "little")) % share.num_slots % slots
        part = Part(self._spans, slot, slots)
        self._part = part if part.count else Part(self._spans, 0, 1)
        self._lap: _Lap | None = None

    def train(self, index: int) -> Batch:
        """Batch number `index` (from 0) of the share's training windows."""
        first = index * self._batch_size
        return self._windows([self._start(k) for k in range(first, first + self._batch_size)])

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that cover the held-out text evenly."""
        return self.held_out_of(Share(), index, num_batches)

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        """Batch `index` of a share's `num_batches`, which cover the held-out text evenly.

        The windows of all slots together do so too, and differ as far as the text has so many.
        """
        starts = self._held_out
        total = num_batches * self._batch_size * share.num_slots
        first = index * self._batch_size
        numbers = range(first, first + self._batch_size)
        spread = [(2 * (i * share.num_slots + share.slot) + 1) for i in numbers]
        return self._windows([starts.position(i * starts.count // (2 * total)) for i in spread])

    def _start(self, number: int) -> int:
        """Where the share's window number `number` begins."""
        part = self._part
        lap_number, rank = divmod(number, part.count)
        lap = self._lap
        if lap is None or lap.number != lap_number:
            lap = self._lap = self._begin_lap(lap_number)
        offset = self._share.offset * part.count // OFFSET_RANGE
        position = part.position(lap.order((rank + offset) % part.count))
        index, within = self._grid.find(position)
        shuffle = Shuffle(self._grid.count_of(index), _hash(struct.pack("<Q", index), lap.key))
        return self._grid.start(index, shuffle(within), lap.phase)

    def _begin_lap(self, number: int) -> _Lap:
        key = _hash(struct.pack("<Q", number), self._key)
        phase = int.from_bytes(_hash(b"phase", key)[:8], "little")
        return _Lap(number, key, phase, Shuffle(self._part.count, _hash(b"order", key)))

    def _windows(self, starts: list[int]) -> Batch:
        windows_BT = self._tokens.windows(starts, self._context + 1)
        return windows_BT[:, :-1].contiguous(), windows_BT[:, 1:].contiguous()


def _hash(data: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32, key=key, person=b"nswarm windows 1").digest()
