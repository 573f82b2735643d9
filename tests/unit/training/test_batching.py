"""Steps of the size that the machine bears, and that takes as long as those of the peers."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.clock import SystemClock
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import WindowSampler
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.errors import OutOfMemory
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.batching import MAX_GROWTH, Batching, choose_num_draws, choose_step_s
from neuroswarm.training.optimizer import InnerOptimizer
from neuroswarm.training.trainer import Trainer

CONFIG = TrainingConfig(lr=1e-2, warmup_steps=3, context=16, dim=16, num_heads=2)
TEXT = torch.tensor(list(b"peers agree, then the swarm moves on. " * 60), dtype=torch.uint8)


class Cramped(nn.Module):
    """A model on a machine that bears only so many windows at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.inner = Transformer(TransformerConfig(dim=16, num_layers=1, num_heads=2, context=16))
        self.most = most
        self.seen: list[int] = []

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        self.seen.append(len(inputs_BT))
        if len(inputs_BT) > self.most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        loss: Tensor = self.inner(inputs_BT, targets_BT)
        return loss


def trainer(most: int = 1000, draw: int = 8, **batching: object) -> Trainer:
    batches = WindowSampler(FlatTokens(TEXT), context=16, batch_size=draw, seed=0)
    made = Trainer(Cramped(most), batches, CONFIG, clock=SystemClock())
    made.batching = Batching(**batching)  # type: ignore[arg-type]
    return made


def furthest(a: Trainer, b: Trainer) -> float:
    pairs = zip(a.local(), b.local(), strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs)


def test_pieces_add_up_to_the_whole_step():
    whole, cut = trainer(draw=8), trainer(draw=8, piece=3)
    for _ in range(3):
        assert whole.step().loss == pytest.approx(cut.step().loss, rel=1e-5)
    assert cut.model.seen == [3, 3, 2] * 3
    assert 0 < furthest(whole, cut) < 1e-4  # the same sums, rounded in another order


def test_many_small_draws_are_other_text_and_as_many_tokens():
    few, many = trainer(draw=8), trainer(draw=1, num_draws=8)
    assert few.step().tokens == many.step().tokens == 8 * 16
    assert many.model.seen == [8]


def test_short_memory_halves_the_pieces_and_the_step_is_taken_all_the_same():
    cramped, roomy = trainer(most=2), trainer(piece=2)
    assert cramped.step().loss == roomy.step().loss
    assert cramped.model.seen == [8, 4, 2, 2, 2, 2]
    assert furthest(cramped, roomy) == 0.0
    cramped.step()
    assert cramped.model.seen[6:] == [2, 2, 2, 2]  # it is remembered
    assert cramped.num_dropped == 0


def test_only_memory_for_nothing_at_all_ends_the_training():
    with pytest.raises(OutOfMemory, match="no memory for one window"):
        trainer(most=0).step()


def test_held_out_text_is_measured_in_pieces_of_the_same_size():
    whole, cut = trainer(draw=8), trainer(most=3, draw=8, piece=3)
    assert whole.evaluate(None, 2) == pytest.approx(cut.evaluate(None, 2), rel=1e-5)
    assert cut.model.seen == [3, 3, 2] * 2


def test_no_memory_for_the_optimiser_is_a_lack_of_memory_too(monkeypatch: pytest.MonkeyPatch):
    made = trainer()

    def refuse(_optimizer: object, _lr: float) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")

    monkeypatch.setattr(InnerOptimizer, "update", refuse)
    before = made.local()
    with pytest.raises(OutOfMemory, match="no memory for the optimiser's state"):
        made.step()
    assert all(map(torch.equal, before, made.local()))
    assert all(parameter.grad is None for _, parameter in made.fragments.parameters)


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
            raise RuntimeError("shape '[3]' is invalid for input of size 4")

    broken = trainer()
    broken._model = Broken()
    with pytest.raises(RuntimeError, match="is invalid"):
        broken.step()


def test_a_resumed_node_goes_on_with_the_size_of_its_steps_bit_for_bit():
    whole = trainer(draw=1, num_draws=4, is_fixed=False)
    whole.step()
    whole.batching.num_draws = 6
    whole.step()
    local, (tensors, counters) = whole.local(), whole.inner_state()
    counters = json.loads(json.dumps(counters))
    resumed = trainer(draw=1, num_draws=4, is_fixed=False)
    resumed.load(local)
    resumed.load_inner_state(tensors, counters)
    for _ in range(3):
        assert whole.step().loss == resumed.step().loss
    assert resumed.model.seen == [6, 6, 6]
    assert furthest(whole, resumed) == 0.0
    assert whole.inner_state()[1] == resumed.inner_state()[1]


def test_what_the_user_has_set_outlives_a_checkpoint_of_another_size():
    kept = trainer(draw=1, num_draws=6, is_fixed=False)
    kept.step()
    fixed = trainer(draw=4)
    fixed.load_inner_state(*kept.inner_state())
    assert fixed.step().tokens == 4 * 16


def measured(draw_s: float, *, num_draws: int = 16) -> Batching:
    batching = Batching(num_draws=num_draws, is_fixed=False)
    for _ in range(3):
        batching.note(num_draws, num_draws, num_draws * draw_s)
    return batching


def test_nothing_is_aimed_at_before_it_is_measured():
    batching = Batching(num_draws=16, is_fixed=False)
    batching.note(16, 32, 60.0)  # the first step warms up
    assert batching.draw_s is None
    batching.aim(1.0)
    assert batching.num_draws == 16
    batching.note(16, 32, 1.6)
    assert batching.draw_s == pytest.approx(0.1)
    assert batching.num_windows == 32


def test_a_machine_that_slows_down_is_measured_anew():
    batching = measured(0.01)
    for _ in range(20):
        batching.note(16, 32, 16 * 0.16)
    assert batching.draw_s == pytest.approx(0.16, rel=0.15)


def test_steps_of_fixed_size_stay():
    batching = Batching(num_draws=1)
    batching.note(1, 8, 1.0)
    batching.note(1, 8, 1.0)
    batching.aim(50.0)
    assert batching.num_draws == 1


@pytest.mark.parametrize(
    ("speeds", "draws"),
    [
        ([1.0], [16]),
        ([1.0, 1.0], [16, 16]),
        ([1.0, 4.0], [8, 32]),
        ([1.0, 4.0, 16.0], [4, 16, 64]),
        ([1.0, 60.0], [2, 124]),
        ([1.0, 1000.0, 1000.0], [1, 16, 16]),
        ([1.0, 1.0, 1000.0], [16, 16, 16 * MAX_GROWTH]),
    ],
)
def test_steps_of_peers_take_about_as_long(speeds: list[float], draws: list[int]):
    """Windows follow speed: what each peer computes by itself from what all of them tell."""
    peers = [measured(0.1 / speed) for speed in speeds]
    told = [peer.start_step_s or 0.0 for peer in peers]
    for k, peer in enumerate(peers):
        peer.aim(choose_step_s(told[k], told[:k] + told[k + 1 :]))
    assert [peer.num_draws for peer in peers] == draws


def test_small_changes_are_not_followed():
    batching = measured(0.1)
    batching.aim(16 * 0.1 * 1.1)
    assert batching.num_draws == 16
    batching.aim(16 * 0.1 * 1.5)
    assert batching.num_draws == 24


def test_liars_move_the_time_of_a_step_only_between_the_others_values():
    honest = [1.0, 2.0, 3.0]
    for lies in ([1e-9], [1e9], [1e-9, 1e9], [1e9, 1e9], [1e-9, 1e-9]):
        assert 1.0 <= choose_step_s(honest[0], honest[1:] + lies) <= 3.0


@pytest.mark.parametrize("lie", [1e-12, 1e-9, 1e9, 1e30])
def test_the_only_peer_makes_steps_8_times_longer_or_shorter_at_most(lie: float):
    assert 1 / 8 <= choose_step_s(1.0, [lie]) <= 8.0
    assert choose_step_s(1.0, [lie, 1.0]) == 1.0


@pytest.mark.parametrize(
    ("kept", "num_draws", "piece"),
    [
        ({"num_draws": 10**9, "piece": None}, 16 * MAX_GROWTH, None),
        ({"num_draws": -5, "piece": 0}, 1, 1),
        ({"num_draws": 7, "piece": -3}, 7, 1),
    ],
)
def test_a_size_from_a_checkpoint_stays_within_the_limits(
    kept: dict[str, object], num_draws: int, piece: int | None
):
    batching = Batching(num_draws=16, is_fixed=False)
    batching.load(kept)
    assert (batching.num_draws, batching.piece) == (num_draws, piece)


def test_a_step_is_at_least_one_draw():
    assert choose_num_draws(0.01, 16) == 1
    assert choose_num_draws(1e9, 16) == 16 * MAX_GROWTH
