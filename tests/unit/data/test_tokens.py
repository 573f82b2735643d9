"""Tokens of every width, whole or in shards, come out as they went in."""

from __future__ import annotations

import pytest
import torch
from tensor_shard import TensorShard

from neuroswarm.data.tokens import FlatTokens, ShardTokens, Split
from neuroswarm.errors import DataError

HIGHEST = {torch.uint8: 2**8 - 1, torch.uint16: 2**16 - 1, torch.uint32: 2**31 - 1}


@pytest.mark.parametrize("dtype", HIGHEST, ids=str)
def test_ids_of_every_width_are_read_as_they_are(dtype: torch.dtype):
    top = HIGHEST[dtype]
    ids = torch.tensor([0, 1, top, top - 1, top // 2 + 1, 7])
    tokens = FlatTokens(ids.to(dtype))
    found = tokens.windows([0, 2], 4)
    assert found.dtype == torch.int64
    assert found.tolist() == [ids[:4].tolist(), ids[2:].tolist()]


def shards() -> ShardTokens:
    """Training shards of 10, 3 and 12 tokens and held-out ones of 2 and 9: values are positions."""
    parts = torch.split(torch.arange(36, dtype=torch.uint8), [10, 3, 12, 2, 9])
    held = {index: TensorShard(part) for index, part in enumerate(parts)}
    return ShardTokens([part.numel() for part in parts], 3, held)


def test_windows_come_from_the_shard_that_they_lie_in():
    tokens = shards()
    assert tokens.num_tokens == 36
    assert tokens.windows([5, 13, 30], 3).tolist() == [[5, 6, 7], [13, 14, 15], [30, 31, 32]]


def test_shards_shorter_than_a_window_are_left_out():
    split = shards().split(5)
    assert split.train == ((0, 10), (13, 25))
    assert split.held_out == ((27, 36),)


@pytest.mark.parametrize(("window", "what"), [(13, "to train on"), (10, "held out")])
def test_without_one_whole_window_the_error_says_which_are_missing(window: int, what: str):
    with pytest.raises(DataError, match=f"no shard {what} has {window} tokens"):
        shards().split(window)


def test_positions_are_those_of_the_whole_corpus_whatever_is_held():
    parts = torch.split(torch.arange(36, dtype=torch.uint8), [10, 3, 12, 2, 9])
    sizes = [part.numel() for part in parts]
    tokens = ShardTokens(sizes, 3, {2: TensorShard(parts[2]), 4: TensorShard(parts[4])})
    assert tokens.split(3) == Split(train=((13, 25),), held_out=((27, 36),))
    assert tokens.layout(3) == shards().split(3)
    assert tokens.windows([13, 30], 3).tolist() == [[13, 14, 15], [30, 31, 32]]
    assert [tokens.is_held(position) for position in (9, 13, 24, 25, 35)] == [
        False, True, True, False, True,
    ]  # fmt: skip
    assert (tokens.num_tokens, tokens.held) == (21, {2, 4})


def test_no_shard_held_is_said_and_a_shard_of_another_length_refused():
    with pytest.raises(DataError, match="no shard to train on"):
        ShardTokens([10, 5], 1, {}).split(3)
    with pytest.raises(ValueError, match="shard 1 has 4 tokens"):
        ShardTokens([10, 5], 1, {1: TensorShard(torch.zeros(4, dtype=torch.uint8))})
