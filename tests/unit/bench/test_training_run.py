"""Runs of all peers in one process: real training, and attackers that really answer it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from neuroswarm.bench.adversary import CRAFTS, Adversary
from neuroswarm.bench.task import Task, Text, flipped_loss, make_trainer
from neuroswarm.bench.training_run import Crew, Record, make_peers, peer_id, run_training
from neuroswarm.diloco.rules import Rules
from neuroswarm.training.loss import next_token_loss

TASK = Task(
    dim=8, context=8, batch_size=4, inner_steps=6, rounds=3, last_rounds=2, warmup_steps=0, lr=1e-2,
    eval_batches=2, eval_batch_size=16,
)  # fmt: skip
PLAIN_MEAN = Rules(
    aggregation_method="mean",
    norm_scaling="none",
    use_nnm=False,
    cosine_threshold=0.0,
    magnitude_ratio_threshold=1e9,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As a process of the benchmark has it: threads that wait for busy cores take for ever."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def text() -> Text:
    source = torch.Generator().manual_seed(5)
    letters = torch.randint(97, 105, (400_000,), generator=source, dtype=torch.uint8)
    return Text.deal(letters, TASK.context)


def run(text: Text, rules: Rules, attack: str | None = None) -> Record:
    adversary = None
    if attack is not None:
        adversary = Adversary(CRAFTS[attack], [peer_id(6), peer_id(7)], seed=1)
    honest = make_peers(TASK, text, rules, 1, range(6))
    return run_training(TASK, rules, Crew(honest, adversary=adversary))


def test_a_clean_run_beats_no_training_and_rejects_nobody(text: Text):
    untrained = make_trainer(TASK, text, 0, 1).evaluate(None, TASK.eval_batches)
    record = run(text, Rules())
    assert record.loss < untrained - 0.1
    assert record.honest == 6 * TASK.rounds
    assert record.honest_rejected == 0
    assert len(record.losses) == TASK.last_rounds


def test_a_run_is_the_same_every_time(text: Text):
    assert run(text, Rules(), "Gaussian noise") == run(text, Rules(), "Gaussian noise")


def test_peers_train_on_disjoint_texts_of_which_none_is_held_out():
    tokens = torch.arange(4_000_000, dtype=torch.int64)
    parts = Text.deal(tokens, 16).parts
    seen = torch.cat(parts)
    assert len(seen.unique()) == len(seen)
    assert 0.94 < len(seen) / len(tokens) < 0.96
    assert max(map(len, parts)) - min(map(len, parts)) <= 16 * 1024


def test_flipped_labels_teach_another_byte(text: Text):
    trainer = make_trainer(TASK, text, 0, 1)
    model = TASK.model(1)
    inputs, targets = torch.tensor([[97, 98]]), torch.tensor([[98, 99]])
    flipped = flipped_loss(model, inputs, targets)
    assert torch.equal(flipped, next_token_loss(model, inputs, 255 - targets))
    assert trainer.num_dropped == 0


def test_the_mean_breaks_where_the_default_holds(text: Text):
    clean = run(text, Rules()).loss
    assert run(text, Rules(), "scaling x100").loss < 1.05 * clean
    assert not run(text, PLAIN_MEAN, "scaling x100").loss < 1.5 * clean


@pytest.mark.parametrize("attack", ["optimised ALIE", "optimised IPM"])
def test_an_optimised_attack_does_more_than_one_that_the_defence_ignores(text: Text, attack: str):
    rules = Rules(cosine_threshold=0.0)
    record = run(text, rules, attack)
    assert record.hostile == 2 * TASK.rounds
    assert math.isfinite(record.loss)
    assert record.losses != run(text, rules).losses


def test_peers_that_are_misled_take_part_and_do_harm(text: Text):
    honest = make_peers(TASK, text, PLAIN_MEAN, 1, range(6))
    misled = make_peers(TASK, text, PLAIN_MEAN, 1, (6, 7), flips=True)
    record = run_training(TASK, PLAIN_MEAN, Crew(honest, misled))
    assert record.hostile == 2 * TASK.rounds
    assert record.loss > run(text, PLAIN_MEAN).loss


def test_a_run_whose_numbers_end_has_no_finite_loss(text: Text):
    task = replace(TASK, rounds=60, last_rounds=1)
    honest = make_peers(task, text, PLAIN_MEAN, 1, range(2))

    def explode(view):
        return view.honest_PN.sign() * 1e18

    adversary = Adversary(explode, [peer_id(6), peer_id(7)], seed=1)
    record = run_training(task, PLAIN_MEAN, Crew(honest, adversary=adversary))
    assert record.is_broken or record.loss > 100
    assert Record(losses=[float("nan")]).loss == math.inf
    assert Record(losses=[1.0], is_broken=True).loss == math.inf
