"""Tokens that windows are cut from: one tensor, or shards on disk that stay there.

Knows nothing of how they were made or of who trains on which.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
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


class Shard(Protocol):
    """The tokens of one shard, wherever they lie."""

    @property
    def num_tokens(self) -> int:
        """How many there are."""
        ...

    def read(self, start: int, length: int) -> Tensor:
        """Tokens from there on: int64 [T]. DataError if they cannot be read, or not any more."""
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
    """The shards of a corpus one after the other, training ones first; some may be missing.

    A position counts over all shards, missing ones included, so that it means the same at every
    node whatever is held there. No window crosses from one shard to the next.

    Args:
        sizes: Tokens of every shard of the corpus, training ones first.
        num_train: How many of the shards are to train on, 0 to their number.
        held: The shards that are here, by their place in `sizes`.

    Raises:
        ValueError: a shard that is here has another length, or none in `sizes`.
    """

    def __init__(self, sizes: Sequence[int], num_train: int, held: Mapping[int, Shard]) -> None:
        for index, shard in held.items():
            if not 0 <= index < len(sizes) or shard.num_tokens != sizes[index]:
                raise ValueError(
                    f"shard {index} has {shard.num_tokens} tokens, which is not its size"
                )
        self._held = dict(held)
        self._num_train = num_train
        self._starts = [0, *accumulate(sizes)]

    @property
    def num_tokens(self) -> int:
        """How many are here."""
        return sum(shard.num_tokens for shard in self._held.values())

    @property
    def held(self) -> frozenset[int]:
        """The shards that are here."""
        return frozenset(self._held)

    def split(self, window: int) -> Split:
        """The training shards and those held out that are here, without those below a window.

        Raises:
            DataError: there is not one of each.
        """
        return self._split(window, self._held)

    def layout(self, window: int) -> Split:
        """As `split`, of the whole corpus: the same at every node.

        Raises:
            DataError: the corpus has not one of each.
        """
        return self._split(window, range(len(self._starts) - 1))

    def is_held(self, start: int) -> bool:
        """Whether the shard that a position lies in is here."""
        return self._shard_of(start) in self._held

    def windows(self, starts: Sequence[int], length: int) -> Tensor:
        """Windows that begin at these positions, in shards that are here: int64 [B, T].

        Raises:
            DataError: a shard cannot be read any more.
        """
        rows = []
        for start in starts:
            index = self._shard_of(start)
            rows.append(self._held[index].read(start - self._starts[index], length))
        return torch.stack(rows)

    def _shard_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1

    def _split(self, window: int, among: Container[int]) -> Split:
        ends = list(zip(self._starts, self._starts[1:], strict=False))
        found = []
        for indices in (range(self._num_train), range(self._num_train, len(ends))):
            spans = (ends[index] for index in indices if index in among)
            found.append(tuple(span for span in spans if span[1] - span[0] >= window))
        for what, ranges in zip(("to train on", "held out"), found, strict=True):
            if not ranges:
                raise DataError(
                    f"no shard {what} has {window} tokens, as a window needs (context + 1): "
                    "prepare more text, or train with a shorter context"
                )
        return Split(*found)


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
