"""Which windows a node reads: dealt out, all of them, none twice too early, always the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_shard import TensorShard
from torch import Tensor

from neuroswarm.data.sampler import ShareAware, WindowSampler
from neuroswarm.data.share import Share
from neuroswarm.data.tokens import SEGMENT_TOKENS, FlatTokens, ShardTokens, Split, split_tokens
from neuroswarm.errors import DataError

GOLDEN = [2314, 826, 1802, 2170, 1562, 3162, 314, 1034]


def sampler(num_tokens: int = 4000, *, seed: int = 7) -> WindowSampler:
    """A sampler over tokens whose values are their positions."""
    return WindowSampler(FlatTokens(torch.arange(num_tokens)), context=16, batch_size=8, seed=seed)


def shards_of(sizes: list[int], held: Iterable[int] | None = None) -> ShardTokens:
    """Shards of tokens whose values are their positions, the last one held out.

    Reading one that is not held is an error.
    """
    shards = torch.split(torch.arange(sum(sizes)), sizes)
    here = range(len(sizes)) if held is None else held
    return ShardTokens(sizes, len(sizes) - 1, {i: TensorShard(shards[i]) for i in here})


def read(source: WindowSampler, share: Share, num_windows: int | None = None) -> list[int]:
    """First tokens of the share's windows in the order of reading; of one lap if not said."""
    source.take_share(share)
    num_windows = num_windows or source.lap_windows
    size = source.train(0)[0].shape[0]
    batches = [source.train(index)[0] for index in range(-(-num_windows // size))]
    return torch.cat([inputs[:, 0] for inputs in batches]).tolist()[:num_windows]


corpora = st.lists(st.integers(7, 150), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(corpora, st.integers(1, 7), st.integers(0, 10**6), st.integers(0, 2**64 - 1))
def test_the_windows_of_a_round_are_dealt_out_to_the_slots_and_all_of_them_are_read(
    sizes: list[int], num_slots: int, round_: int, seed: int
):
    source = WindowSampler(shards_of([*sizes, 7]), context=6, batch_size=1, seed=seed)
    expected = sum(max(1, size // 6 - 1) for size in sizes)
    num_slots = min(num_slots, expected)
    found: list[int] = []
    for slot in range(num_slots):
        part = read(source, Share(round_, slot, num_slots))
        assert len(set(part)) == len(part), "none twice before all were read"
        assert expected // num_slots <= len(part) <= -(-expected // num_slots)
        found += part
    assert len(found) == len(set(found)) == expected, "disjoint, and together all"
    predicted = [p for start in found for p in range(start + 1, start + 7)]
    assert len(set(predicted)) == len(predicted), "no token is a target twice"
    ranges = [(end - size, end - 1) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    for start in found:
        assert any(a <= start and start + 6 <= b for a, b in ranges), "within one shard"


@given(
    st.integers(2, 9), st.sets(st.integers(0, 5), min_size=1), st.integers(0, 20),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_node_that_holds_some_shards_reads_its_own_windows_in_those(
    num_slots: int, held: set[int], round_: int
):
    sizes = [60, 200, 65, 90, 90, 150, 40]
    whole = WindowSampler(shards_of(sizes), context=6, batch_size=1, seed=3)
    some = WindowSampler(shards_of(sizes, {*held, 6}), context=6, batch_size=1, seed=3)
    ends = list(accumulate(sizes))
    here = [(ends[index] - sizes[index], ends[index]) for index in held]
    for slot in range(num_slots):
        share = Share(round_, slot, num_slots)
        everything = read(whole, share)
        own = {start for start in everything if any(a <= start < b for a, b in here)}
        assert own
        assert own == set(read(some, share))


def test_with_none_of_its_windows_at_hand_a_node_reads_what_is_there():
    tokens = shards_of([7, 700, 7, 7], {0, 3})
    source = WindowSampler(tokens, context=6, batch_size=1, seed=3)
    starts = [read(source, Share(0, slot, 50), 3) for slot in range(50)]
    assert all(start == 0 for part in starts for start in part)
    assert source.held_out(0, 1)[0].tolist() == [list(range(714, 720))]


@pytest.mark.parametrize("num_slots", [3, 40, 1000])
def test_with_fewer_windows_than_slots_several_read_the_same(num_slots: int):
    source = WindowSampler(shards_of([21, 15, 7]), context=6, batch_size=1, seed=0)
    assert source.lap_windows == 3
    readers: Counter[int] = Counter()
    for slot in range(num_slots):
        readers.update(read(source, Share(4, slot, num_slots), 1))
    assert sum(readers.values()) == num_slots
    assert len(readers) == 3
    assert max(readers.values()) - min(readers.values()) <= 1


def test_after_the_end_of_its_part_a_node_begins_another_lap_in_another_order():
    source = sampler()
    count = source.lap_windows
    starts = read(source, Share(2, 0, 1), 3 * count)
    laps = [starts[i * count : (i + 1) * count] for i in range(3)]
    assert all(len(set(lap)) == count for lap in laps)
    assert laps[0] != laps[1] != laps[2]
    assert len({start % 16 for lap in laps for start in lap}) > 1, "windows begin elsewhere too"


def test_newcomers_read_the_spare_part_from_places_of_their_own():
    source = sampler(40_000)
    early, late = (read(source, Share(0, 3, 4, offset)) for offset in (0, 2**52))
    count = len(early)
    assert set(early) == set(late)
    assert len(set(early)) == count
    assert early[count // 2 :] == late[: count - count // 2]
    members = [read(source, Share(0, slot, 4)) for slot in range(3)]
    assert not set(early) & {start for part in members for start in part}


def test_a_batch_depends_on_seed_share_and_index_alone():
    reference = sampler().train(5)[0]
    used = sampler()
    used.take_share(Share(9, 1, 3))
    used.train(70)
    used.take_share(Share())
    assert torch.equal(used.train(5)[0], reference)
    moved = sampler()
    moved.take_share(Share(1))
    for other in (sampler().train(6), sampler(seed=8).train(5), moved.train(5)):
        assert not torch.equal(other[0], reference)


def test_rounds_draw_independently():
    """Of two rounds' quarters a quarter is the same, not none and not all."""
    source = sampler(60_000)
    count = source.lap_windows
    seen = [{start // 16 for start in read(source, Share(r, 0, 4), count // 4)} for r in range(6)]
    shared = [len(a & b) / len(a) for a, b in pairwise(seen)]
    assert all(0.17 < share < 0.33 for share in shared), shared


def test_the_positions_are_those_of_the_first_release():
    """Nodes of several versions share a round, and a restarted one goes on with the same data."""
    source = sampler()
    source.take_share(Share(3, 1, 4))
    assert source.train(0)[0][:, 0].tolist() == GOLDEN


def test_targets_are_the_inputs_one_token_later():
    inputs, targets = sampler().train(3)
    assert inputs.shape == targets.shape == (8, 16)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)


def test_a_hundred_billion_tokens_take_no_memory_for_their_windows():
    class Counted:
        """Tokens whose values are their positions, and not there."""

        num_tokens = 10**11

        def split(self, window: int) -> Split:
            return split_tokens(self.num_tokens, window)

        layout = split

        def windows(self, starts: list[int], length: int) -> Tensor:
            return torch.tensor(starts)[:, None] + torch.arange(length)

    source = WindowSampler(Counted(), context=1024, batch_size=64, seed=1)
    ours = read(source, Share(12, 0, 3), 1024)
    assert len(set(ours)) == 1024
    assert min(ours) < 10**9 < 99 * 10**9 < max(ours)
    assert not set(ours) & set(read(source, Share(12, 1, 3), 1024))


def test_training_never_touches_held_out_text():
    source = sampler()
    held_out = {p for start, end in source.split.held_out for p in range(start, end)}
    seen: set[int] = set()
    for round_ in range(100):
        source.take_share(Share(round_))
        for index in range(20):
            inputs, targets = source.train(index)
            seen.update(inputs[:, 0].tolist(), targets.flatten().tolist())
    assert not seen & held_out
    assert len(seen) > 0.95 * (4000 - len(held_out))


def test_held_out_batches_cover_the_held_out_text_and_nothing_else():
    source = sampler(200_000)
    held_out = {p for start, end in source.split.held_out for p in range(start, end)}
    batches = [source.held_out(index, 30) for index in range(30)]
    starts = torch.cat([inputs[:, 0] for inputs, _ in batches])
    touched = {p for b in batches for p in torch.cat((b[0].flatten(), b[1].flatten())).tolist()}
    assert touched <= held_out
    assert torch.equal(starts, starts.sort().values)
    assert all(any(s <= p < e for p in touched) for s, e in source.split.held_out)


def test_slots_evaluate_different_parts_that_are_spread_over_the_held_out_text():
    source, whole = sampler(200_000), sampler(200_000)
    parts = []
    for slot in range(3):
        batches = [source.held_out_of(Share(9, slot, 3), index, 5)[0] for index in range(5)]
        parts.append(torch.cat(batches)[:, 0].tolist())
    together = [start for starts in zip(*parts, strict=True) for start in starts]
    at_once = torch.cat([whole.held_out(index, 15)[0] for index in range(15)])[:, 0].tolist()
    assert together == at_once
    assert len(set(together)) == len(together)


def test_held_out_batches_do_not_depend_on_what_is_trained_on():
    source = sampler()
    before = source.held_out(1, 4)[0]
    source.take_share(Share(5, 2, 3))
    assert torch.equal(source.held_out(1, 4)[0], before)
    assert torch.equal(sampler(seed=1).held_out(1, 4)[0], before)


def test_a_sampler_knows_shares():
    assert isinstance(sampler(), ShareAware)


def test_each_twentieth_segment_of_a_long_text_is_held_out():
    split = split_tokens(45 * SEGMENT_TOKENS + 5, 129)
    assert split.held_out == (
        (19 * SEGMENT_TOKENS, 20 * SEGMENT_TOKENS),
        (39 * SEGMENT_TOKENS, 40 * SEGMENT_TOKENS),
    )
    assert split.train[-1] == (40 * SEGMENT_TOKENS, 45 * SEGMENT_TOKENS + 5)


@pytest.mark.parametrize("num_tokens", [34, 35, 50, 51, 100, 339, 340, 341, 5000, 1_400_000])
def test_every_text_has_text_to_train_on_and_to_hold_out(num_tokens: int):
    split = split_tokens(num_tokens, 17)
    assert split.train
    assert split.held_out
    spans = sorted(split.train + split.held_out)
    assert all(end - start >= 17 for start, end in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert spans[-1][1] <= num_tokens
    held = sum(end - start for start, end in split.held_out)
    assert held <= max(num_tokens / 2, 17)
    source = sampler(num_tokens)
    source.take_share(Share(1, 2, 5))
    assert source.train(3)[0].shape == (8, 16)


def test_too_little_text_is_refused_with_what_is_needed():
    with pytest.raises(DataError, match=r"33 tokens \(needs at least 34"):
        split_tokens(33, 17)


def test_only_flat_integer_tokens_are_taken():
    for tokens in (torch.zeros(100), torch.zeros(10, 10, dtype=torch.int64)):
        with pytest.raises(ValueError, match="tokens"):
            FlatTokens(tokens)
