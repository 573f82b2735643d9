from itertools import pairwise

import pytest
import torch

from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import SEGMENT_TOKENS, FlatTokens, split_tokens
from neuroswarm.errors import DataError
from neuroswarm.values import NodeId

ALICE, BOB = NodeId(b"a" * 20), NodeId(b"b" * 20)
GOLDEN = [97, 2177, 3048, 1384, 2801, 2673, 1921, 1078]


def sampler(num_tokens: int = 4000, *, node_id: NodeId = ALICE, seed: int = 7) -> WindowSampler:
    """A sampler over tokens whose values are their positions."""
    tokens = FlatTokens(torch.arange(num_tokens))
    return WindowSampler(tokens, context=16, batch_size=8, seed=seed, node_id=node_id)


def test_targets_are_the_inputs_one_token_later():
    inputs, targets = sampler().train(3)
    assert inputs.shape == targets.shape == (8, 16)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)


def test_a_batch_depends_on_seed_node_and_index_alone():
    reference = sampler().train(5)[0]
    assert torch.equal(sampler().train(5)[0], reference)
    for other in (sampler().train(6), sampler(node_id=BOB).train(5), sampler(seed=8).train(5)):
        assert not torch.equal(other[0], reference)


def test_the_positions_are_those_of_the_first_release():
    """A restarted node of another version must go on with the same data."""
    assert sampler().train(0)[0][:, 0].tolist() == GOLDEN


def test_training_never_touches_held_out_text():
    source = sampler()
    held_out = {p for start, end in source.split.held_out for p in range(start, end)}
    seen: set[int] = set()
    for index in range(2000):
        inputs, targets = source.train(index)
        seen.update(inputs[:, 0].tolist(), targets[:, -1].tolist())
    assert not seen & held_out
    assert len(seen) > 0.9 * (4000 - len(held_out))


def test_held_out_batches_cover_the_held_out_text_and_nothing_else():
    source = sampler(200_000)
    held_out = {p for start, end in source.split.held_out for p in range(start, end)}
    batches = [source.held_out(index, 30) for index in range(30)]
    starts = torch.cat([inputs[:, 0] for inputs, _ in batches])
    touched = {p for b in batches for p in torch.cat((b[0].flatten(), b[1].flatten())).tolist()}
    assert touched <= held_out
    assert torch.equal(starts, starts.sort().values)
    assert all(any(s <= p < e for p in touched) for s, e in source.split.held_out)


def test_held_out_batches_are_the_same_for_all_nodes():
    ours, theirs = sampler().held_out(1, 4), sampler(node_id=BOB, seed=1).held_out(1, 4)
    assert torch.equal(ours[0], theirs[0])


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


def test_too_little_text_is_refused_with_what_is_needed():
    with pytest.raises(DataError, match=r"33 tokens \(needs at least 34"):
        split_tokens(33, 17)


def test_only_flat_integer_tokens_are_taken():
    for tokens in (torch.zeros(100), torch.zeros(10, 10, dtype=torch.int64)):
        with pytest.raises(ValueError, match="tokens"):
            FlatTokens(tokens)
