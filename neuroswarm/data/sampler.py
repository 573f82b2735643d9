"""Which windows of the tokens a node trains on, as a pure function of seed, node and step.

Refuses to know where the tokens come from or what is done with a batch.

Shapes: B = windows in a batch, T = tokens in a window.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from neuroswarm.errors import DataError
from neuroswarm.values import NodeId

SEGMENT_TOKENS = 64 * 1024
HELD_OUT_EVERY = 20

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each int64 [B, T]; targets are the inputs one token later."""


@dataclass(frozen=True, slots=True)
class Split:
    """Half-open ranges of token positions to train on and to hold out; disjoint, ascending."""

    train: tuple[tuple[int, int], ...]
    held_out: tuple[tuple[int, int], ...]


def split_tokens(num_tokens: int, window: int) -> Split:
    """Hold out each 20th segment of 64 Ki tokens.

    Where the text has fewer than 20 such segments they are made shorter, but never shorter than
    a window; where it then has fewer than 20, the last one is held out. The same for all nodes.

    Args:
        num_tokens: Length of the text.
        window: Tokens that a window needs (context + 1).

    Raises:
        DataError: the text has less than two windows.
    """
    if num_tokens < 2 * window:
        raise DataError(
            f"too little text: {num_tokens} tokens (needs at least {2 * window}; "
            "give a larger file or folder, or a shorter context)"
        )
    segment = max(window, min(SEGMENT_TOKENS, num_tokens // HELD_OUT_EVERY))
    num_segments = num_tokens // segment
    held = list(range(HELD_OUT_EVERY - 1, num_segments, HELD_OUT_EVERY)) or [num_segments - 1]
    train: list[tuple[int, int]] = []
    at = 0
    for index in held:
        train.append((at, index * segment))
        at = (index + 1) * segment
    train.append((at, num_tokens))
    return Split(
        train=tuple((start, end) for start, end in train if end - start >= window),
        held_out=tuple((index * segment, (index + 1) * segment) for index in held),
    )


class WindowSampler:
    """Batches of windows from one text.

    Training windows are drawn uniformly, with replacement, from the training ranges; batch k of
    a node depends on (seed, node id, k) alone, so that the position in the data is one number.
    Held-out windows are spread evenly over the held-out ranges, the same for all nodes.

    Args:
        tokens: The text. Integers, 1-D, CPU; never written to.
        context: T.
        batch_size: B.
        seed: Of the swarm, 0 to 2**64 - 1.
        node_id: Whose windows these are.

    Raises:
        DataError: the text has less than two windows.
    """

    def __init__(
        self, tokens: Tensor, *, context: int, batch_size: int, seed: int, node_id: NodeId
    ) -> None:
        if tokens.dim() != 1 or tokens.dtype.is_floating_point:
            raise ValueError(f"tokens: {tokens.dtype} {tuple(tokens.shape)} (integers, 1-D)")
        if batch_size < 1 or context < 1:
            raise ValueError(f"batch {batch_size} x {context} tokens (both at least 1)")
        self._tokens = tokens
        self._offsets_T = torch.arange(context + 1)
        self._batch_size = batch_size
        self._key = hashlib.sha256(
            b"neuroswarm v1 windows\0" + struct.pack("<Q", seed) + node_id
        ).digest()
        self.split = split_tokens(len(tokens), context + 1)
        self._train = _Starts(self.split.train, context + 1)
        self._held_out = _Starts(self.split.held_out, context + 1)

    def train(self, index: int) -> Batch:
        """Batch number `index` (from 0) of this node's training windows."""
        noise = hashlib.shake_128(self._key + struct.pack("<Q", index)).digest(8 * self._batch_size)
        draws = struct.unpack(f"<{self._batch_size}Q", noise)
        return self._windows([self._train.position(draw % self._train.count) for draw in draws])

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that cover the held-out text evenly."""
        total = num_batches * self._batch_size
        first = index * self._batch_size
        spread = [
            (2 * i + 1) * self._held_out.count // (2 * total)
            for i in range(first, first + self._batch_size)
        ]
        return self._windows([self._held_out.position(rank) for rank in spread])

    def _windows(self, starts: list[int]) -> Batch:
        positions_BT = torch.tensor(starts)[:, None] + self._offsets_T
        windows_BT = self._tokens[positions_BT].to(torch.int64)
        return windows_BT[:, :-1].contiguous(), windows_BT[:, 1:].contiguous()


class _Starts:
    """The positions at which a window may start, numbered 0 to `count` - 1."""

    def __init__(self, ranges: tuple[tuple[int, int], ...], window: int) -> None:
        self._ranges = ranges
        self._before = [0, *accumulate(end - start - window + 1 for start, end in ranges)]
        self.count = self._before[-1]

    def position(self, rank: int) -> int:
        index = bisect_right(self._before, rank) - 1
        return self._ranges[index][0] + rank - self._before[index]
