import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.clock import SystemClock
from neuroswarm.config.training import TrainingConfig
from neuroswarm.data.sampler import Batch, WindowSampler
from neuroswarm.data.share import Share
from neuroswarm.data.tokens import FlatTokens
from neuroswarm.diloco.schedule import InnerPlan
from neuroswarm.errors import CheckpointError, ComputeError, DataError, NonFiniteLoss
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.loss import next_token_loss, takes_targets
from neuroswarm.training.optimizer import InnerOptimizer
from neuroswarm.training.trainer import KEPT_SHARES, MAX_DROPPED_IN_A_ROW, Trainer

CONFIG = TrainingConfig(lr=1e-2, warmup_steps=3, batch_size=4, context=16, dim=16, num_heads=2)
SHAPE = TransformerConfig(dim=16, num_layers=2, num_heads=2, context=16)
TEXT = torch.tensor(list(b"peers agree, then the swarm moves on. " * 60), dtype=torch.uint8)


class Noisy(nn.Module):
    """A model with dropout, a batch norm and a scalar loss from its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 256)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        hidden = self.norm(self.embedding(inputs).flatten(0, 1))
        hidden = F.dropout(hidden, 0.3, training=self.training)
        return F.cross_entropy(self.head(hidden), targets.flatten())


def batches() -> WindowSampler:
    return WindowSampler(FlatTokens(TEXT), context=16, batch_size=4, seed=0)


def trainer(model: nn.Module | None = None, config: TrainingConfig = CONFIG) -> Trainer:
    return Trainer(model or Transformer(SHAPE), batches(), config, clock=SystemClock())


def noisy() -> Noisy:
    torch.manual_seed(4)
    return Noisy()


def equal(a: Trainer, b: Trainer) -> bool:
    """Whether two trainers are the same bit for bit."""
    (tensors_a, json_a), (tensors_b, json_b) = a.inner_state(), b.inner_state()
    return (
        json_a == json_b
        and tensors_a.keys() == tensors_b.keys()
        and all(torch.equal(tensors_a[name], tensors_b[name]) for name in tensors_a)
        and all(map(torch.equal, a.local(), b.local()))
    )


def test_training_lowers_the_held_out_loss():
    trained = trainer()
    before = trained.evaluate(None, 2)
    for _ in range(60):
        trained.step()
    assert trained.evaluate(None, 2) < 0.6 * before


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("make", [lambda: Transformer(SHAPE), noisy], ids=["transformer", "noisy"])
def test_a_resumed_trainer_equals_the_uninterrupted_one_bit_for_bit(make, optimizer):
    plan = InnerPlan(optimizer, lambda steps: 0.01 / (1 + steps))
    whole = trainer(make())
    whole.follow(plan)
    for _ in range(5):
        whole.step()
    whole.mark_published(whole.progress)
    whole.step()
    local, (tensors, counters) = whole.local(), whole.inner_state()
    counters = json.loads(json.dumps(counters))
    for _ in range(6):
        whole.step()
    torch.rand(17)  # what others draw does not matter
    resumed = trainer(make())
    resumed.step()  # nor what it did before
    resumed.follow(plan)
    resumed.load(local)
    resumed.load_inner_state(tensors, counters)
    assert not equal(resumed, whole)
    for _ in range(6):
        resumed.step()
    assert equal(resumed, whole)


def test_a_resumed_trainer_without_the_optimiser_state_differs():
    """The comparison above can fail."""
    whole = trainer()
    for _ in range(3):
        whole.step()
    resumed = trainer()
    resumed.load(whole.local())
    resumed.load_inner_state({}, whole.inner_state()[1])
    whole.step()
    resumed.step()
    assert not equal(resumed, whole)


class Noted:
    """The sampler's batches, with notes of what was asked of them; knows shares or not."""

    def __init__(self) -> None:
        self.sampler = batches()
        self.asked: list[object] = []

    def train(self, index: int) -> Batch:
        self.asked.append(index)
        return self.sampler.train(index)

    def held_out(self, index: int, num_batches: int) -> Batch:
        self.asked.append("all")
        return self.sampler.held_out(index, num_batches)


class NotedShares(Noted):
    def take_share(self, share: Share) -> None:
        self.asked.append(share)
        self.sampler.take_share(share)

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        self.asked.append((share, index))
        return self.sampler.held_out_of(share, index, num_batches)


def trainer_of(data: Noted) -> Trainer:
    return Trainer(Transformer(SHAPE), data, CONFIG, clock=SystemClock())


FIRST, SECOND = Share(4, 1, 3), Share(5, 0, 3)


def json_of(trained: Trainer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Its inner state as it comes back from the disk."""
    tensors, counters = trained.inner_state()
    return tensors, json.loads(json.dumps(counters))


def test_the_numbers_of_batches_begin_anew_with_every_share_and_go_on_with_a_former_one():
    data = NotedShares()
    trained = trainer_of(data)
    trained.step()
    for share in (FIRST, FIRST, SECOND, FIRST):
        trained.take_share(share)
        trained.step()
        trained.step()
    assert data.asked == [0, FIRST, 0, 1, 2, 3, SECOND, 0, 1, FIRST, 4, 5]
    again = NotedShares()
    resumed = trainer_of(again)
    resumed.load_inner_state(*json_of(trained))
    resumed.take_share(SECOND)
    resumed.step()
    assert again.asked == [SECOND, 2], "also after a restart"


def test_only_so_many_former_shares_are_kept():
    data = NotedShares()
    trained = trainer_of(data)
    for k in range(20):
        trained.take_share(Share(k, 0, 3))
        trained.step()
    assert len(trained.inner_state()[1]["shares_left_at"]) == KEPT_SHARES
    trained.take_share(Share(0, 0, 3))
    trained.step()
    assert data.asked[-2:] == [Share(0, 0, 3), 0]


def test_data_that_knows_no_shares_goes_on_through_all_of_them():
    data = Noted()
    trained = trainer_of(data)
    for share in (FIRST, SECOND):
        trained.take_share(share)
        trained.step()
        trained.step()
    trained.evaluate(None, 1, FIRST)
    assert data.asked == [0, 1, 2, 3, "all"]
    resumed = trainer_of(data)
    resumed.load_inner_state(*trained.inner_state())
    resumed.step()
    assert data.asked[-1] == 4


def test_the_held_out_part_of_a_share_is_evaluated_and_nothing_else_changes():
    data = NotedShares()
    trained = trainer_of(data)
    trained.take_share(FIRST)
    of_second, of_first = trained.evaluate(None, 2, SECOND), trained.evaluate(None, 2, FIRST)
    assert of_second != of_first
    trained.evaluate(None, 1)
    trained.step()
    assert data.asked == [
        (SECOND, 0), (SECOND, 1), (FIRST, 0), (FIRST, 1), "all", FIRST, 0
    ]  # fmt: skip


@pytest.mark.parametrize("num_steps", [0, 3], ids=["at once", "in the middle of the share"])
def test_a_trainer_resumed_within_a_share_reads_the_same_windows_on(num_steps: int):
    whole, data = trainer(), NotedShares()
    whole.step()
    whole.take_share(FIRST)
    for _ in range(num_steps):
        whole.step()
    local, (tensors, counters) = whole.local(), json_of(whole)
    resumed = trainer_of(data)
    resumed.take_share(SECOND)
    resumed.step()
    resumed.load(local)
    resumed.load_inner_state(tensors, counters)
    resumed.take_share(FIRST)  # as a node does that stands on the same state
    for each in (whole, resumed):
        for _ in range(3):
            each.step()
    assert data.asked[-4:] == [FIRST, num_steps, num_steps + 1, num_steps + 2]
    assert equal(resumed, whole)
    for each in (whole, resumed):
        each.take_share(SECOND)
        each.step()
    assert equal(resumed, whole)


def test_a_checkpoint_of_data_that_knew_no_shares_goes_on_with_data_that_does():
    plain = trainer_of(Noted())
    for _ in range(3):
        plain.step()
    data = NotedShares()
    resumed = trainer_of(data)
    resumed.load_inner_state(*plain.inner_state())
    resumed.take_share(FIRST)
    resumed.step()
    assert data.asked == [FIRST, 0]
    plain.load_inner_state(*resumed.inner_state())
    plain.step()
    assert plain.batches.asked[-1] == 4, "and back: the number of all batches"


def test_what_data_raises_as_it_takes_a_share_is_an_error_of_the_next_step():
    class Broken(NotedShares):
        def take_share(self, share: Share) -> None:
            raise DataError("shelf is empty")

    trained = trainer_of(Broken())
    trained.step()
    trained.take_share(FIRST)
    for _ in range(2):
        with pytest.raises(DataError, match="shelf is empty"):
            trained.step()


def test_a_share_out_of_range_in_a_checkpoint_is_refused():
    source = trainer()
    source.take_share(FIRST)
    tensors, counters = source.inner_state()
    with pytest.raises(CheckpointError, match="needs a round"):
        source.load_inner_state(tensors, {**counters, "share": {"round": 1, "slot": 9}})


def test_state_that_was_handed_out_does_not_change_with_the_trainer():
    source = trainer(noisy())
    source.step()
    tensors, _ = source.inner_state()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    other = trainer(noisy())
    other.load_inner_state(*source.inner_state())
    source.step()
    other.step()
    assert all(torch.equal(tensors[name], before[name]) for name in before)
    assert any(name.startswith("buffer.norm.running_mean") for name in tensors)


def test_progress_counts_since_the_publication_and_in_all():
    counted = trainer()
    losses = [counted.step().loss for _ in range(3)]
    assert counted.progress.steps == 3
    assert counted.progress.tokens == 3 * 4 * 16
    assert counted.progress.mean_loss == pytest.approx(sum(losses) / 3)
    counted.mark_published(counted.progress)
    assert counted.progress.mean_loss == 0.0
    report = counted.step()
    assert (counted.progress.steps, counted.total.steps) == (1, 4)
    assert counted.last_loss == report.loss
    assert report.seconds > 0


def one_weight(shape: tuple[int, ...] = (1,)) -> tuple[nn.Parameter, InnerOptimizer]:
    weight = nn.Parameter(torch.ones(shape))
    return weight, InnerOptimizer([("w", weight)], CONFIG, nn.Module())


def test_gradients_are_clipped_and_a_step_is_as_long_as_its_rate():
    weight, optimizer = one_weight()
    moves = []
    for lr in (1e-3, 2e-3, 3e-3):
        weight.grad = torch.full((1,), 7.0)
        assert optimizer.clip() == pytest.approx(7.0)
        assert weight.grad.item() == pytest.approx(CONFIG.clip_norm, rel=1e-4)
        before = weight.item()
        optimizer.update(lr)
        moves.append(before - weight.item())
    assert moves == pytest.approx([1e-3, 2e-3, 3e-3], rel=1e-3)


def test_the_rate_is_the_plan_s_from_the_next_step_on():
    trained, still = trainer(), trainer()
    trained.follow(InnerPlan("adamw", lambda steps: 0.0 if steps < 2 else 1e-2))
    before = still.local()
    for _ in range(2):
        trained.step()
        assert all(map(torch.equal, trained.local(), before))
    trained.step()
    assert not any(map(torch.equal, trained.local(), before))


def test_without_a_plan_the_rate_warms_up():
    asked = []
    watched, planned = trainer(), trainer()

    def ramp(steps: int) -> float:
        asked.append(steps)
        return CONFIG.lr * min(1, (steps + 1) / CONFIG.warmup_steps)

    planned.follow(InnerPlan("adamw", ramp))
    for _ in range(4):
        watched.step()
        planned.step()
    assert asked == [0, 1, 2, 3]
    assert all(map(torch.equal, watched.local(), planned.local()))


def test_only_matrices_decay():
    for shape, kept in (((1, 1), 1 - CONFIG.lr * CONFIG.weight_decay), ((1,), 1.0)):
        weight, optimizer = one_weight(shape)
        weight.grad = torch.zeros(shape)
        optimizer.update(CONFIG.lr)
        assert weight.item() == pytest.approx(kept)


def test_shift_moves_and_load_replaces_the_parameters():
    moved = trainer()
    start = moved.local()
    moved.shift([torch.full_like(flat, 0.5) for flat in start])
    assert all(torch.equal(new, old + 0.5) for old, new in zip(start, moved.local(), strict=True))
    moved.load(start)
    assert all(map(torch.equal, moved.local(), start))


def test_evaluating_other_parameters_leaves_no_trace():
    model = noisy()
    model.norm.eval()
    evaluated, reference = trainer(model), trainer(noisy())
    for each in (evaluated, reference):
        each.step()
    before = evaluated.inner_state(), evaluated.local()
    zeros = [torch.zeros_like(flat) for flat in evaluated.local()]
    assert evaluated.evaluate(zeros, 3) == pytest.approx(math.log(256), rel=1e-5)
    after = evaluated.inner_state(), evaluated.local()
    assert all(map(torch.equal, before[1], after[1]))
    assert before[0][1] == after[0][1]
    assert all(torch.equal(v, after[0][0][k]) for k, v in before[0][0].items())
    assert model.training
    assert not model.norm.training
    assert evaluated.evaluate(None, 3) == evaluated.evaluate(evaluated.local(), 3)


def test_a_failing_evaluation_puts_the_parameters_back():
    failing = Trainer(
        Transformer(SHAPE), batches(), CONFIG, clock=SystemClock(), loss_fn=lambda m, x, y: x
    )
    before = failing.local()
    with pytest.raises(ComputeError, match="needs a scalar"):
        failing.evaluate([torch.zeros_like(flat) for flat in before], 1)
    assert all(map(torch.equal, failing.local(), before))


class Scripted:
    """A loss function that multiplies the true loss by what the script says for each call."""

    def __init__(self, *factors: float) -> None:
        self.factors = list(factors)

    def __call__(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        factor = self.factors.pop(0) if self.factors else 1.0
        loss = next_token_loss(model, inputs, targets)
        if factor == -math.inf:  # a finite loss with a gradient that is not
            return loss + _bad_gradient(loss)
        return loss * factor


def _bad_gradient(loss: Tensor) -> Tensor:
    return (loss - loss.detach()).sqrt()


@pytest.mark.parametrize("factor", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "gradient"])
def test_a_step_that_is_not_finite_is_dropped_and_the_next_batch_is_taken(factor: float):
    loss_fn = Scripted(1.0, factor)
    dropping = Trainer(Transformer(SHAPE), batches(), CONFIG, clock=SystemClock(), loss_fn=loss_fn)
    dropping.step()
    before, moments = dropping.local(), dropping.inner_state()
    report = dropping.step()
    assert report.is_dropped
    assert report.tokens == 0
    assert all(map(torch.equal, dropping.local(), before))
    tensors, counters = dropping.inner_state()
    assert all(torch.equal(tensors[name], moments[0][name]) for name in tensors)
    assert counters["position"] == 2
    assert (dropping.num_dropped, dropping.total.steps) == (1, 1)
    assert not dropping.step().is_dropped
    json.dumps(counters, allow_nan=False)


def test_endless_bad_steps_are_an_error():
    broken = Trainer(
        Transformer(SHAPE),
        batches(),
        CONFIG,
        clock=SystemClock(),
        loss_fn=Scripted(*[math.nan] * MAX_DROPPED_IN_A_ROW),
    )
    for _ in range(MAX_DROPPED_IN_A_ROW - 1):
        broken.step()
    with pytest.raises(NonFiniteLoss, match="in a row"):
        broken.step()


def test_a_shared_and_a_frozen_parameter_train_as_they_should():
    model = nn.Sequential(nn.Embedding(256, 8), nn.Linear(8, 8), nn.Linear(8, 256, bias=False))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    frozen = model[1].weight.clone()
    trained = trainer(model)
    assert trained.fragments.names == ("0",)
    trained.step()
    assert torch.equal(model[1].weight, frozen)
    assert model[2].weight is model[0].weight
    other = trainer(model)
    other.load_inner_state(*trained.inner_state())
    assert equal(other, trained)


def test_state_of_another_model_is_refused():
    source = trainer(noisy())
    source.step()
    tensors, counters = source.inner_state()
    with pytest.raises(CheckpointError, match="buffers"):
        trainer().load_inner_state(tensors, counters)
    with pytest.raises(CheckpointError, match="does not fit"):
        trainer().load_inner_state(trainer_state_of_width(32), counters)
    with pytest.raises(CheckpointError, match="position"):
        source.load_inner_state(tensors, {k: v for k, v in counters.items() if k != "position"})


def trainer_state_of_width(dim: int) -> dict[str, Tensor]:
    wide = trainer(Transformer(TransformerConfig(dim=dim, num_layers=2, num_heads=2, context=16)))
    wide.step()
    return wide.inner_state()[0]


class LogitsOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 256)

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        assert mask is None
        return self.table(inputs)


class LogitsOfTwo(LogitsOnly):
    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        return self.table(inputs)


def test_every_form_of_forward_gives_the_same_loss():
    inputs, targets = batches().train(0)
    plain = LogitsOnly()
    expected = F.cross_entropy(plain(inputs).flatten(0, 1), targets.flatten())
    assert torch.equal(next_token_loss(plain, inputs, targets), expected)
    two = LogitsOfTwo()
    two.load_state_dict(plain.state_dict())
    assert torch.equal(next_token_loss(two, inputs, targets), expected)
    assert takes_targets(Noisy())
    assert takes_targets(Transformer(SHAPE))
    assert not takes_targets(plain)


@pytest.mark.parametrize(
    "result",
    [torch.zeros(4, 16), torch.zeros(4, 15, 256), {"loss": 1}],
    ids=["2d", "short", "dict"],
)
def test_a_model_that_returns_something_else_is_refused(result: object):
    class Odd(nn.Module):
        def forward(self, inputs: Tensor) -> object:
            return result

    with pytest.raises(ComputeError, match="loss_fn"):
        next_token_loss(Odd(), *batches().train(0))


class Double(nn.Module):
    """Learns in float64, and from a sparse embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embedding = nn.Embedding(256, 8, sparse=True, dtype=torch.float64)
        self.head = nn.Linear(8, 256, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.head(self.embedding(inputs))
        return result


def test_float64_and_sparse_gradients_go_on_bit_for_bit():
    first, second = trainer(Double()), trainer(Double())
    for _ in range(4):
        first.step()
    assert first.num_dropped == 0
    second.load(first.local())
    second.load_inner_state(*first.inner_state())
    assert equal(first, second)
    before = first.fragments.copies()
    outer = tuple(torch.zeros_like(flat) for flat in first.local())
    assert first.evaluate(outer, 1) == pytest.approx(math.log(256), abs=1e-3)
    assert all(map(torch.equal, before, first.fragments.copies()))
    for _ in range(3):
        assert first.step().loss == second.step().loss
    assert all(map(torch.equal, first.fragments.copies(), second.fragments.copies()))


def test_a_loss_that_nothing_trained_has_a_part_in_is_named():
    def constant(_model: nn.Module, inputs: Tensor, _targets: Tensor) -> Tensor:
        return inputs.float().mean()

    stuck = Trainer(Transformer(SHAPE), batches(), CONFIG, clock=SystemClock(), loss_fn=constant)
    with pytest.raises(ComputeError, match="does not depend on any parameter"):
        stuck.step()


class WithCache(nn.Module):
    """Returns an object with logits, as models of Hugging Face do, and counts its caches."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 256)
        self.caches = 0

    def forward(self, input_ids: Tensor, cache: object = None, use_cache: bool = True) -> object:
        self.caches += use_cache
        return SimpleNamespace(logits=self.table(input_ids), loss=None)


def test_an_object_with_logits_gives_their_loss_and_no_cache_is_made():
    model = WithCache()
    tokens = torch.arange(12).view(2, 6)
    loss = next_token_loss(model, tokens, tokens + 1)
    expected = F.cross_entropy(model.table(tokens).flatten(0, 1), (tokens + 1).flatten())
    assert torch.equal(loss, expected)
    assert model.caches == 0
