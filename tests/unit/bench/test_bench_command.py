"""`neuroswarm bench attacks` from the command line to the JSON file and its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroswarm.bench.execution import run_jobs
from neuroswarm.bench.matrix import Job
from neuroswarm.bench.task import Task
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.diloco.rules import Rules


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(20_000)))
    return path


def test_a_small_benchmark_from_flags_to_markdown(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "attacks.json"
    code = run(
        ["bench", "attacks", "--json", str(path), "--rules", "default", "--attacks", "sign flip",
         "--seeds", "5", "--rounds", "2", "--jobs", "1", "--data", str(text)]
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == ExitCode.OK
    assert "3 of 3" in out
    assert "Left out: all rules but default; all attacks but sign flip" in out
    report = json.loads(path.read_text())
    assert report["default_worst_ratio"] == pytest.approx(1.0, abs=0.05)
    assert report["default_worst_attack"] == "sign flip"
    assert report["default_clean_cost"] is None
    assert report["mean_diverges"] is None
    assert report["num_params"] <= 100_000
    assert report["seeds"] == [5]
    assert report["task"]["rounds"] == 2
    (row,) = report["table"]
    assert row["ratio_by_seed"].keys() == {"5"}
    assert run(["bench", "table", str(path)]) == ExitCode.OK
    assert f"| sign flip | {row['ratio']:.3f} |" in capsys.readouterr().out


def test_a_broken_promise_is_one_line_and_the_exit_code(
    text: Path, capsys: pytest.CaptureFixture[str]
):
    code = run(
        ["bench", "attacks", "--rules", "mean", "--attacks", "mimic",
         "--seeds", "5", "--rounds", "1", "--jobs", "1", "--data", str(text)]
    )  # fmt: skip
    assert code == ExitCode.UNFULFILLED
    assert capsys.readouterr().err.splitlines() == [
        "neuroswarm: failed: the plain mean diverges under no attack (expected: at least one)"
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds", "one"], "--seeds one: whole numbers with commas are needed"),
        (["--seeds", "1,1"], "--seeds 1,1: at least one, none twice or below 0"),
        (["--json", "/nowhere/at/all.json"], "cannot write /nowhere/at/all.json"),
        (["--rules", "best"], "unknown rules: 'best'"),
    ],
)
def test_bad_flags_are_told_before_anything_runs(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert run(["bench", "attacks", "--jobs", "1", *flags]) == ExitCode.CONFIG
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_report_is_told(text: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["bench", "table", str(text)]) == ExitCode.CONFIG
    assert "is no report" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_find_what_one_finds(text: Path):
    task = Task().with_rounds(2, 2)
    jobs = [Job("default", "none", seed, 2, 0, task, Rules()) for seed in (1, 2)]
    alone = {r.job.seed: r.loss for r in run_jobs(jobs, num_processes=1, data=text)}
    together = {r.job.seed: r.loss for r in run_jobs(jobs, num_processes=2, data=text)}
    assert alone == together
