"""Which windows of the tokens a node trains on, as a pure function of seed, node and step.

Refuses to know where the tokens come from or what is done with a batch.

Shapes: B = windows in a batch, T = tokens in a window.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from itertools import accumulate

from torch import Tensor

from neuroswarm.data.tokens import Ranges, Tokens
from neuroswarm.values import NodeId

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each int64 [B, T]; targets are the inputs one token later."""


class WindowSampler:
    """Batches of windows from one text.

    Training windows are drawn uniformly, with replacement, from the training ranges; batch k of
    a node depends on (seed, node id, k) alone, so that the position in the data is one number.
    Held-out windows are spread evenly over the held-out ranges, the same for all nodes.

    Args:
        tokens: The text.
        context: T.
        batch_size: B.
        seed: Of the swarm, 0 to 2**64 - 1.
        node_id: Whose windows these are.
        held_out_size: Windows of a held-out batch; None: B.

    Raises:
        DataError: the text is too short.
    """

    def __init__(
        self,
        tokens: Tokens,
        *,
        context: int,
        batch_size: int,
        seed: int,
        node_id: NodeId,
        held_out_size: int | None = None,
    ) -> None:
        if batch_size < 1 or context < 1:
            raise ValueError(f"batch {batch_size} x {context} tokens (both at least 1)")
        self._tokens = tokens
        self._context = context
        self._batch_size = batch_size
        self._held_out_size = held_out_size or batch_size
        self._key = hashlib.sha256(
            b"neuroswarm v1 windows\0" + struct.pack("<Q", seed) + node_id
        ).digest()
        self.split = tokens.split(context + 1)
        self._train = _Starts(self.split.train, context + 1)
        self._held_out = _Starts(self.split.held_out, context + 1)

    def train(self, index: int) -> Batch:
        """Batch number `index` (from 0) of this node's training windows."""
        noise = hashlib.shake_128(self._key + struct.pack("<Q", index)).digest(8 * self._batch_size)
        draws = struct.unpack(f"<{self._batch_size}Q", noise)
        return self._windows([self._train.position(draw % self._train.count) for draw in draws])

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that cover the held-out text evenly."""
        total = num_batches * self._held_out_size
        first = index * self._held_out_size
        spread = [
            (2 * i + 1) * self._held_out.count // (2 * total)
            for i in range(first, first + self._held_out_size)
        ]
        return self._windows([self._held_out.position(rank) for rank in spread])

    def _windows(self, starts: list[int]) -> Batch:
        windows_BT = self._tokens.windows(starts, self._context + 1)
        return windows_BT[:, :-1].contiguous(), windows_BT[:, 1:].contiguous()


class _Starts:
    """The positions at which a window may start, numbered 0 to `count` - 1."""

    def __init__(self, ranges: Ranges, window: int) -> None:
        self._ranges = ranges
        self._before = [0, *accumulate(end - start - window + 1 for start, end in ranges)]
        self.count = self._before[-1]

    def position(self, rank: int) -> int:
        index = bisect_right(self._before, rank) - 1
        return self._ranges[index][0] + rank - self._before[index]
