"""Nodes whose inner steps a loop outside of them takes: they meet, restart, and bear its whims."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from loop_scene import adamw, agree, loss_of, make_node, running, url_of
from torch import nn

from neuroswarm import SwarmNode, SwarmOptimizer
from neuroswarm.errors import ConfigError, LifecycleError
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.testing.waiting import wait_until
from neuroswarm.training import lent

pytestmark = pytest.mark.slow

WITHIN_S = 40.0


@pytest.fixture
def model() -> nn.Module:
    return TinyModel()


@pytest.fixture
def node(tmp_path: Path, model: nn.Module) -> Iterator[SwarmNode]:
    node = make_node(tmp_path / "state", model)
    node.start()
    yield node
    node.stop()


def train(model: nn.Module, optimizer: SwarmOptimizer, last: int) -> list[float]:
    """The losses of the steps up to `last`, from where the optimiser is."""
    losses = []
    while (number := optimizer.num_steps) < last:
        loss = loss_of(model, number)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(loss=loss, tokens=64)
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def scheduler(optimizer: SwarmOptimizer) -> torch.optim.lr_scheduler.LambdaLR:
    """Warms up over ten steps, and goes on from where the optimiser is."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 10), last_epoch=optimizer.num_steps - 1
    )


# -- restarts ------------------------------------------------------------------------


def losses_over_lives(folder: Path, lives: list[int]) -> list[float]:
    """The losses of all steps, of a loop that ends and comes back after each of these steps."""
    losses: list[float] = []
    for number, last in enumerate(lives):
        model = TinyModel(0 if number == 0 else 7)  # what was learned is in the checkpoint
        node = make_node(folder, model)
        node.start()
        optimizer = SwarmOptimizer(adamw(model), node)
        assert optimizer.num_steps == len(losses)
        rates = scheduler(optimizer)
        while optimizer.num_steps < last:
            losses += train(model, optimizer, optimizer.num_steps + 1)
            rates.step()
        node.stop()
        assert optimizer.param_groups[0]["lr"] == 0.01 * min(1.0, (last + 1) / 10)
    return losses


def test_a_restarted_loop_goes_on_bit_for_bit_as_the_uninterrupted_one(tmp_path: Path):
    whole = losses_over_lives(tmp_path / "whole", [21])
    resumed = losses_over_lives(tmp_path / "resumed", [3, 13, 21])
    assert len(whole) == 21
    assert whole[-1] < 0.9 * whole[0]
    assert resumed == whole


def test_a_checkpoint_of_another_optimiser_is_refused_by_name(tmp_path: Path):
    model = TinyModel()
    node = make_node(tmp_path, model)
    node.start()
    train(model, SwarmOptimizer(adamw(model), node), 2)
    node.stop()
    node = make_node(tmp_path, model)
    node.start()
    try:
        with pytest.raises(ConfigError, match="holds the state of AdamW, not of SGD"):
            SwarmOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), node)
        assert (
            node.core.require_parts().compute.run_sync(lambda: "has the model") == "has the model"
        )
        optimizer = SwarmOptimizer(adamw(model), node)  # nothing was lost by the mistake
        assert optimizer.num_steps == 2
        assert optimizer.state[next(model.parameters())]["step"] == 2
    finally:
        node.stop()


def test_a_loop_that_never_came_loses_nothing_of_the_checkpoint(tmp_path: Path):
    first = losses_over_lives(tmp_path / "whole", [8])
    losses = losses_over_lives(tmp_path / "resumed", [4])
    node = make_node(tmp_path / "resumed", TinyModel(3))
    node.start()
    node.stop()
    model = TinyModel(4)
    node = make_node(tmp_path / "resumed", model)
    node.start()
    optimizer = SwarmOptimizer(adamw(model), node)
    rates = scheduler(optimizer)
    for _ in range(4):
        losses += train(model, optimizer, optimizer.num_steps + 1)
        rates.step()
    node.stop()
    assert losses == first


# -- with others ---------------------------------------------------------------------


def test_loops_train_together_and_one_that_stands_still_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lent, "STALL_S", 1.0)
    monkeypatch.setattr(lent, "STALL_INTERVALS", 0)
    with running(tmp_path / "anna", 1) as anna:
        with running(tmp_path / "bert", 2, url_of(anna.node)) as bert:
            wait_until(agree([anna, bert]), within_s=WITHIN_S, what="both in the swarm")

            bert.goes.clear()
            compute = bert.node.core.require_parts().compute
            wait_until(lambda: compute.is_stalled, within_s=WITHIN_S, what="bert to be missed")
            assert not bert.node.core.is_voter
            stood = anna.round
            wait_until(lambda: anna.round >= stood + 4, within_s=WITHIN_S, what="anna to go on")
            assert bert.node.get_swarm_status()["num_alive"] == 1  # it goes on listening

            bert.goes.set()
            used = {r: r.stat("foreign_contributions_used") for r in (anna, bert)}
            wait_until(
                lambda: all(
                    r.stat("foreign_contributions_used") > count for r, count in used.items()
                ),
                within_s=WITHIN_S,
                what="bert to be back",
            )
            wait_until(agree([anna, bert]), within_s=WITHIN_S, what="equal states")
        last = anna.round
        wait_until(lambda: anna.round > last, within_s=WITHIN_S, what="anna to go on alone")


def test_a_loop_that_says_it_pauses_follows_the_others(tmp_path: Path):
    with running(tmp_path / "anna", 1) as anna:
        model = TinyModel(2)
        node = make_node(tmp_path / "bert", model, url_of(anna.node))
        node.start()
        optimizer = SwarmOptimizer(adamw(model), node)
        train(model, optimizer, 3)
        with optimizer.paused():
            seen = node.current_training_round
            wait_until(
                lambda: node.current_training_round >= seen + 3,
                within_s=WITHIN_S,
                what="rounds without a step",
            )
            with pytest.raises(LifecycleError, match=r"inside paused\(\)"):
                optimizer.step()
        train(model, optimizer, 6)
        node.stop()


# -- the end -------------------------------------------------------------------------


def test_a_node_stopped_from_elsewhere_waits_for_the_next_step(tmp_path: Path):
    with running(tmp_path / "anna", 1) as anna:
        wait_until(lambda: anna.round >= 2, within_s=WITHIN_S)
        anna.node.stop()
        saved = anna.node.core.require_parts().checkpointer
        assert saved.last_reason == "shutdown"


def test_a_node_stopped_while_the_loop_is_away_ends_and_the_loop_goes_on_alone(
    tmp_path: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lent, "LEAVE_S", 0.3)
    node = make_node(tmp_path, model)
    node.start()
    optimizer = SwarmOptimizer(adamw(model), node)
    train(model, optimizer, 3)
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    stopping.join()
    assert node.core.require_parts().checkpointer.last_reason != "shutdown"
    before = [parameter.detach().clone() for parameter in model.parameters()]
    train(model, optimizer, 5)
    assert not any(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_a_node_that_fails_is_told_of_once_and_the_loop_goes_on(
    node: SwarmNode, model: nn.Module, caplog: pytest.LogCaptureFixture
):
    async def break_down() -> None:
        raise ZeroDivisionError("a bug in the node")

    optimizer = SwarmOptimizer(adamw(model), node)
    assert node._loop is not None
    node._loop.call_soon_threadsafe(lambda: node.core.parts.recorder._spawn(break_down()))  # type: ignore[union-attr]

    def has_failed_after_a_step() -> bool:
        train(model, optimizer, optimizer.num_steps + 1)
        return node.core.fault is not None

    with caplog.at_level(logging.ERROR):
        wait_until(has_failed_after_a_step, within_s=WITHIN_S, what="the node to fail")
        last = optimizer.num_steps + 3
        train(model, optimizer, last)
    told = [record for record in caplog.records if "goes on alone" in record.message]
    assert len(told) == 1
    assert "a bug in the node" in caplog.text
    assert optimizer.num_steps == last


def test_an_evaluation_that_raises_ends_nothing(
    node: SwarmNode, model: nn.Module, caplog: pytest.LogCaptureFixture
):
    def evaluate(_model: nn.Module) -> float:
        raise ZeroDivisionError("no such data")

    optimizer = SwarmOptimizer(adamw(model), node, evaluate=evaluate)

    def was_not_measured() -> bool:
        train(model, optimizer, optimizer.num_steps + 1)
        return "the held-out loss was not measured" in caplog.text

    wait_until(was_not_measured, within_s=WITHIN_S, what="a round")
    assert "no such data" in caplog.text
    assert node.core.fault is None


# -- the optimiser -------------------------------------------------------------------


def test_what_status_shows_of_a_loop(node: SwarmNode, model: nn.Module):
    seen: list[bool] = []

    def evaluate(evaluated: nn.Module) -> float:
        seen.append(evaluated.training or torch.is_grad_enabled())
        return loss_of(evaluated, 99).item()

    optimizer = SwarmOptimizer(adamw(model), node, tokens_per_step=10, evaluate=evaluate)
    loss_of(model, 0).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert node.current_loss is None
    assert node.total_tokens_processed == 10
    optimizer.note(loss=3.0, tokens=5)
    optimizer.note(loss=torch.tensor(4.0), tokens=6)
    optimizer.step()
    assert node.current_loss == 3.5
    assert node.total_tokens_processed == 21
    optimizer.step(loss=float("nan"), tokens=2)
    assert node.current_loss == 3.5
    with pytest.raises(LifecycleError, match="a loop of yours trains"):
        node.train_step()
    with pytest.raises(LifecycleError, match="a loop of yours trains"):
        node.train(rounds=1)
    train(model, optimizer, 12)
    statistics = node.core.require_parts().reporter.statistics
    wait_until(lambda: statistics.held_out_loss is not None, within_s=WITHIN_S)
    assert seen
    assert not any(seen)
    assert model.training


def test_schedulers_scalers_hooks_and_closures_see_an_optimiser(node: SwarmNode, model: nn.Module):
    inner = adamw(model)
    optimizer = SwarmOptimizer(inner, node)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.optimizer is inner
    steps: list[torch.optim.Optimizer] = []
    optimizer.register_step_post_hook(lambda o, _args, _kwargs: steps.append(o))
    rates = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def scaled_step(factor: float) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, 0)
        scaler.scale(loss * factor).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    scaled_step(1.0)
    rates.step()
    assert inner.param_groups[0]["lr"] == 0.005
    assert optimizer.num_steps == 1
    before = next(model.parameters()).detach().clone()
    scaled_step(float("inf"))
    assert optimizer.num_steps == 1  # the scaler skipped it
    assert torch.equal(next(model.parameters()), before)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    assert optimizer.step(closure).item() == node.current_loss
    assert steps == [inner, inner]

    kept = optimizer.state_dict()
    assert kept["param_groups"] == inner.state_dict()["param_groups"]
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.load_state_dict(kept)
    assert inner.param_groups[0]["lr"] == 0.005
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ConfigError, match="none can be added"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(AttributeError, match="grad_scale"):
        _ = optimizer.grad_scale


def test_what_cannot_work_is_refused_by_name(node: SwarmNode, model: TinyModel, tmp_path: Path):
    unstarted = make_node(tmp_path / "unstarted", TinyModel())
    with pytest.raises(LifecycleError, match=r"node\.start\(\) before SwarmOptimizer"):
        SwarmOptimizer(adamw(model), unstarted)
    with pytest.raises(ConfigError, match=r"missing: head\.bias, head\.weight"):
        SwarmOptimizer(adamw(nn.Sequential(model.embedding, model.hidden)), node)
    foreign = nn.Parameter(torch.zeros(3))
    with pytest.raises(ConfigError, match=r"foreign: one of shape \(3,\) that is not of this"):
        SwarmOptimizer(torch.optim.SGD([*model.parameters(), foreign], lr=0.1), node)
    odd = adamw(model)
    odd.param_groups[1]["odd"] = lambda: None
    with pytest.raises(ConfigError, match=r"group\.1\.odd is of type function"):
        SwarmOptimizer(odd, node)
    with pytest.raises(ConfigError, match="tokens_per_step out of range: 0"):
        SwarmOptimizer(adamw(model), node, tokens_per_step=0)
    SwarmOptimizer(adamw(model), node)
    with pytest.raises(LifecycleError, match="has an optimiser already"):
        SwarmOptimizer(adamw(model), node)


def test_wrong_arguments_are_refused_before_anything_happens(node: SwarmNode, model: nn.Module):
    adamw = torch.optim.AdamW(model.parameters())
    for wrong, given in (
        ("optimizer of type int", (5, node, {})),
        ("node of type int", (adamw, 5, {})),
        ("evaluate of type int", (adamw, node, {"evaluate": 4})),
        ("tokens_per_step: 'x'", (adamw, node, {"tokens_per_step": "x"})),
    ):
        optimizer, where, options = given
        with pytest.raises(ConfigError, match=wrong):
            SwarmOptimizer(optimizer, where, **options)  # type: ignore[arg-type]
    made = SwarmOptimizer(adamw, node)
    with pytest.raises(ConfigError, match=r"tokens: 2\.5 \(a whole number\)"):
        made.step(tokens=2.5)  # type: ignore[arg-type]
    assert made.num_steps == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": tiny_text()}, "data to train on by itself"),
        ({"enable_training": False}, "training is off"),
    ],
    ids=["data", "training off"],
)
async def test_nodes_that_are_not_for_a_loop_say_so(
    tmp_path: Path, changes: dict[str, object], said: str
):
    model = TinyModel()
    async with make_node(tmp_path, model, **changes) as node:
        with pytest.raises(LifecycleError, match="would block the event loop"):
            SwarmOptimizer(adamw(model), node)
        with pytest.raises(ConfigError, match=said):
            await asyncio.to_thread(SwarmOptimizer, adamw(model), node)


def test_an_optimiser_whose_state_becomes_what_no_checkpoint_holds_is_told_of_at_once(
    node: SwarmNode, model: nn.Module
):
    class Odd(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            self.state[self.param_groups[0]["params"][0]]["odd"] = object()

    optimizer = SwarmOptimizer(Odd(model.parameters(), lr=0.1), node)
    with pytest.raises(ConfigError, match=r"state\.embedding\.weight\.odd is of type object"):
        optimizer.step()
