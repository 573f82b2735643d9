"""`neuroswarm bench convergence`: real runs in small, what is made of them, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from neuroswarm.bench.campaign import finite
from neuroswarm.bench.convergence_arms import ARMS
from neuroswarm.bench.convergence_plan import QUICK, Arm, Job, Kind, Selection, plan
from neuroswarm.bench.convergence_report import check_promises, summarise, table_rows
from neuroswarm.bench.convergence_run import JoinedBatches, run_convergence_job
from neuroswarm.bench.jobs import Result
from neuroswarm.bench.task import PeerBatches, Task, load_text, make_trainer
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.schedule import plan_inner_steps

TASK = Task(
    dim=8, num_layers=1, context=8, batch_size=4, eval_batches=2, eval_batch_size=16,
)  # fmt: skip
RULES = {"inner_lr": 1e-2, "warmup_steps": 2, "lr_schedule": "cosine", "lr_floor": 0.0}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As a process of the benchmark has it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(20_000)))
    return path


def job(kind: Kind, steps: int = 9, **rules: Any) -> Job:
    given = {**RULES, "inner_steps": 4 if kind == "swarm" else steps, **rules}
    given["schedule_rounds"] = -(-steps // given["inner_steps"])
    return Job(kind, kind, 1, steps, TASK, Rules.model_validate(given))


def test_a_swarm_that_meets_after_every_step_is_nearly_synchronous(text: Path):
    """SGD would be equal; Adam on a mean of gradients is not the mean of Adams, but near it."""
    mean = {"aggregation_method": "mean", "use_nnm": False, "norm_scaling": "none",
            "auto_scale": False, "outer_lr": 1.0, "outer_momentum": 0.0}  # fmt: skip
    alone = run_convergence_job(job("alone", 60), text).loss
    synchronous = run_convergence_job(job("synchronous", 60), text).loss
    swarm = run_convergence_job(job("swarm", 60, inner_steps=1, **mean), text).loss
    assert synchronous < alone
    assert abs(swarm - synchronous) < abs(alone - synchronous)


@pytest.mark.parametrize("kind", ["alone", "synchronous", "swarm"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_is_the_same_every_time_and_trains(text: Path, kind: Kind, optimizer: str):
    made = job(kind, inner_optimizer=optimizer)
    first, second = run_convergence_job(made, text), run_convergence_job(made, text)
    assert (first.loss, first.details) == (second.loss, second.details)
    untrained = make_trainer(TASK, load_text(text, TASK.context), 0, 1).evaluate(None, 2)
    assert first.loss < untrained
    other = run_convergence_job(replace(made, seed=2), text)
    assert other.loss != first.loss


def test_a_synchronous_step_is_one_on_the_mean_of_all_gradients(text: Path):
    loaded = load_text(text, TASK.context)
    peers = [PeerBatches(loaded, part, TASK, 1) for part in range(4)]
    inputs, targets = JoinedBatches(peers).train(3)
    model = TASK.model(1)
    model(inputs, targets).backward()
    joint = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for peer in peers:
        (model(*peer.train(3)) / 4).backward()
    for found, wanted in zip(model.parameters(), joint, strict=True):
        torch.testing.assert_close(found.grad, wanted)


def test_every_step_has_the_rate_of_the_schedule_and_the_last_round_may_be_shorter(text: Path):
    made = job("swarm", steps=9, inner_steps=4)
    assert made.round_lengths == [4, 4, 1]
    single = job("synchronous", steps=9)
    rates = [plan_inner_steps(single.rules, 0).lr(step) for step in range(9)]
    assert rates[0] == pytest.approx(0.5 * RULES["inner_lr"])
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[-1] > 0
    details = run_convergence_job(made, text).details
    assert [step for step, _ in details["curve"]] == [4, 8, 9]


def test_bytes_are_those_of_the_payloads_and_of_an_all_reduce(text: Path):
    params = TASK.model(0)
    count = sum(p.numel() for p in params.parameters())
    swarm = run_convergence_job(job("swarm", inner_steps=4, codec_block=64), text).details
    assert swarm["num_params"] == count
    # Half a byte a value and four a block of 64, to three others, in three rounds.
    assert swarm["bytes_per_peer"] / (3 * 3) == pytest.approx(count * (0.5 + 4 / 64), rel=0.1)
    synchronous = run_convergence_job(job("synchronous"), text).details
    assert synchronous["bytes_per_peer"] == 9 * 1.5 * 4 * count
    assert run_convergence_job(job("alone"), text).details["bytes_per_peer"] == 0


def results(losses: dict[tuple[str, Kind, str, int], tuple[float, ...]]) -> list[Result[Job]]:
    """By (arm, kind, inner optimiser, how many times fewer bytes): a loss for each seed."""
    return [
        Result(
            replace(job(kind, inner_optimizer=optimizer), arm=arm, seed=seed),
            loss,
            1.0,
            {"num_params": 100, "curve": [], "rejected": 0,
             "bytes_per_peer": 9 * 600 / factor if factor else 0},
        )
        for (arm, kind, optimizer, factor), found in losses.items()
        for seed, loss in enumerate(found)
    ]  # fmt: skip


SEEN: dict[tuple[str, Kind, str, int], tuple[float, ...]] = {
    ("alone", "alone", "adamw", 0): (2.1, 1.9),
    ("alone, faster", "alone", "adamw", 0): (2.5, 2.5),
    ("alone, Muon", "alone", "muon", 0): (1.8, 1.8),
    ("synchronous", "synchronous", "adamw", 1): (1.1, 0.9),
    ("synchronous, Muon", "synchronous", "muon", 1): (0.8, 0.8),
    ("often", "swarm", "muon", 50): (1.0, 1.0),
    ("seldom", "swarm", "muon", 100): (1.1, 1.1),
    ("more seldom", "swarm", "adamw", 400): (1.5, 1.5),
}


def test_shares_are_of_the_best_references_and_limited_by_bytes():
    report = summarise(results(SEEN))
    assert report["share_of_gain_100x"] == pytest.approx(0.9)
    assert report["share_of_gain_100x_arm"] == "seldom"
    assert report["share_of_gain_100x_muon"] == pytest.approx(0.7)
    assert report["share_of_gain_400x"] == pytest.approx(0.5)
    assert report["references"]["alone"] == {"adamw": "alone", "muon": "alone, Muon"}
    assert [p.name for p in check_promises(report) if not p.holds] == ["share_of_gain_400x"]
    heading, *rows = table_rows(report)
    assert len(rows) == len(SEEN)
    assert {len(row) for row in rows} == {len(heading)}
    assert rows[0][0] == "alone"
    assert rows[-1][0] == "more seldom"


def test_an_arm_that_broke_has_no_share_and_no_number_in_the_report():
    report = summarise(results({**SEEN, ("broken", "swarm", "muon", 800): (math.inf, 1.0)}))
    assert report["share_of_gain_400x_arm"] == "more seldom"
    (row,) = (row for row in finite(report)["table"] if row["arm"] == "broken")
    assert (row["loss"], row["share_of_gain"]) == (None, None)
    assert "broke" in table_rows(finite(report))[-1]


def test_without_references_there_is_no_share_and_nothing_is_promised_of_it():
    report = summarise(results({k: v for k, v in SEEN.items() if k[1] == "swarm"}))
    assert report["share_of_gain_100x"] is None
    assert [p.name for p in check_promises(report)] == ["honest_rejected"]


def test_the_plan_gives_every_arm_the_same_steps_and_its_own_rate():
    jobs = plan(Selection(is_quick=True, seeds=(5, 6), times_lr=2.0), ARMS)
    quick = [arm for arm in ARMS if arm.stage == "quick"]
    assert len(jobs) == 2 * len(quick)
    assert {made.steps for made in jobs} == {QUICK.steps}
    assert all(sum(made.round_lengths) == made.steps for made in jobs)
    rates = {made.arm: made.rules.inner_lr for made in jobs}
    assert rates == {arm.name: 2 * arm.rules["inner_lr"] for arm in quick}
    assert {arm.kind for arm in quick} == {"alone", "synchronous", "swarm"}
    assert len({arm.name for arm in ARMS}) == len(ARMS)
    everything = plan(Selection(is_quick=True, is_search=True, seeds=(5,)), ARMS)
    assert len(everything) == len(ARMS) > len(plan(Selection(seeds=(5,)), ARMS)) > len(quick)


def test_from_flags_to_the_report_and_its_table(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "convergence.json"
    asked = ["bench", "convergence", "--quick", "--json", str(path), "--steps", "1", "--jobs", "1",
             "--seeds", "5", "--data", str(text)]  # fmt: skip
    assert run([*asked, "--arms", "alone, AdamW; "]) == ExitCode.OK
    report = json.loads(path.read_text())
    assert report["benchmark"] == "convergence"
    assert report["tokens_per_peer"] == 8 * 64
    assert [row["kind"] for row in report["table"]] == ["alone"]
    assert not (tmp_path / "convergence.json.runs").exists()
    capsys.readouterr()
    assert run(["bench", "table", str(path)]) == ExitCode.OK
    assert "| alone, AdamW | adamw |" in capsys.readouterr().out


def test_an_unknown_arm_is_told(capsys: pytest.CaptureFixture[str]):
    assert run(["bench", "convergence", "--arms", "best"]) == ExitCode.CONFIG
    assert "unknown arm: 'best'" in capsys.readouterr().err


def test_arms_have_legal_rules():
    for arm in ARMS:
        assert isinstance(arm, Arm)
        Rules.model_validate(arm.rules)
