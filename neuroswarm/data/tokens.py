"""Tokens that windows are cut from: one tensor, or shards on disk that stay there.

Knows nothing of how they were made or of who trains on which.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from neuroswarm.errors import DataError

HELD_OUT_EVERY = 20
SEGMENT_TOKENS = 64 * 1024

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of token positions, ascending."""


@dataclass(frozen=True, slots=True)
class Split:
    """Where windows to train on may lie, and where those held out; disjoint."""

    train: Ranges
    held_out: Ranges


_MASKS = {torch.uint16: (torch.int16, 0xFFFF), torch.uint32: (torch.int32, 0xFFFFFFFF)}
"""Dtypes that torch cannot index: the signed one of the same bits, and what makes it unsigned."""


class Tokens(Protocol):
    """A long row of token ids, with the places that windows may be taken from."""

    @property
    def num_tokens(self) -> int:
        """How many there are."""
        ...

    def split(self, window: int) -> Split:
        """Ranges to train on and to hold out that are held here, each at least one window long.

        They stay the same: where more is held later, that is another object.

        Raises:
            DataError: there is not one window of each.
        """
        ...

    def layout(self, window: int) -> Split:
        """As `split`, of the whole text: the same at every node, whatever is held there.

        Raises:
            DataError: the whole text has not one window of each.
        """
        ...

    def windows(self, starts: Sequence[int], length: int) -> Tensor:
        """Windows that begin at these positions, each within a range of `split`: int64 [B, T]."""
        ...


class FlatTokens:
    """All tokens in one tensor; each 20th segment is held out.

    Args:
        tokens: Integers, 1-D, CPU; never written to.

    Raises:
        ValueError: `tokens` is none of that.
    """

    def __init__(self, tokens: Tensor) -> None:
        if tokens.dim() != 1 or tokens.dtype.is_floating_point:
            raise ValueError(f"tokens: {tokens.dtype} {tuple(tokens.shape)} (integers, 1-D)")
        self._tokens = tokens

    @property
    def num_tokens(self) -> int:
        """How many there are."""
        return self._tokens.numel()

    def split(self, window: int) -> Split:
        """As `split_tokens`."""
        return split_tokens(self.num_tokens, window)

    def layout(self, window: int) -> Split:
        """The same: all of it is here."""
        return self.split(window)

    def windows(self, starts: Sequence[int], length: int) -> Tensor:
        """Windows that begin at these positions: int64 [B, T]."""
        return _gather(self._tokens, starts, length)


class ShardTokens:
    """Shards one after the other, training ones first; no window crosses from one to the next.

    Args:
        train: Shards to train on: unsigned integers, 1-D, usually mapped from files.
        held_out: Shards to hold out.
    """

    def __init__(self, train: Sequence[Tensor], held_out: Sequence[Tensor]) -> None:
        self._shards = (*train, *held_out)
        self._num_train = len(train)
        self._starts = [0, *accumulate(shard.numel() for shard in self._shards)]

    @property
    def num_tokens(self) -> int:
        """How many there are."""
        return self._starts[-1]

    def split(self, window: int) -> Split:
        """The training shards and those held out, without the ones shorter than a window.

        Raises:
            DataError: there is not one of each.
        """
        ends = list(zip(self._starts, self._starts[1:], strict=False))
        train, held_out = ends[: self._num_train], ends[self._num_train :]
        found = [tuple(r for r in ranges if r[1] - r[0] >= window) for ranges in (train, held_out)]
        for what, ranges in zip(("to train on", "held out"), found, strict=True):
            if not ranges:
                raise DataError(
                    f"no shard {what} has {window} tokens, as a window needs (context + 1): "
                    "prepare more text, or train with a shorter context"
                )
        return Split(*found)

    def layout(self, window: int) -> Split:
        """The same: all of it is here."""
        return self.split(window)

    def windows(self, starts: Sequence[int], length: int) -> Tensor:
        """Windows that begin at these positions: int64 [B, T]."""
        rows = []
        for start in starts:
            index = bisect_right(self._starts, start) - 1
            rows.append(_gather(self._shards[index], [start - self._starts[index]], length))
        return torch.cat(rows)


def split_tokens(num_tokens: int, window: int) -> Split:
    """Hold out each 20th segment of 64 Ki tokens; the same for all nodes.

    Where the text has fewer than 20 such segments they are made shorter, but never shorter than
    a window; where it then has fewer than 20, the last one is held out.

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


def _gather(tokens: Tensor, starts: Sequence[int], length: int) -> Tensor:
    positions_BT = torch.tensor(starts)[:, None] + torch.arange(length)
    if tokens.dtype in _MASKS:
        signed, mask = _MASKS[tokens.dtype]
        return tokens.view(signed)[positions_BT].to(torch.int64) & mask
    return tokens[positions_BT].to(torch.int64)
