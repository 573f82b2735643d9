import json
from dataclasses import replace
from pathlib import Path

import pytest

from neuroswarm.bench.checkpoint_report import MAX_STALL_VS_COPY, Cycle, make_rows, summarise
from neuroswarm.cli.bench_checkpoint import parse_params
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.errors import ConfigError

CYCLE = Cycle(
    stall_s=1.4,
    copy_stall_s=1.0,
    outer_stall_s=0.0,
    outer_write_s=2.0,
    inner_write_s=4.0,
    outer_bytes=800,
    inner_bytes=1600,
    copied_bytes=1200,
    bytes_written=2400,
    step_s=0.1,
)


def broken(*cycles: Cycle, num_params: int = 100_000_000) -> list[str]:
    report = summarise(num_params, cycles, plain_write_s=1.0, idle_step_s=0.1)
    return [promise["name"] for promise in report["promises"] if not promise["holds"]]


@pytest.mark.parametrize(
    ("cycle", "expected"),
    [
        (CYCLE, []),
        (replace(CYCLE, stall_s=MAX_STALL_VS_COPY + 0.1), ["stall_vs_copy"]),
        (replace(CYCLE, outer_stall_s=0.001), ["outer_stall_s"]),
        (replace(CYCLE, bytes_written=2500), ["bytes_ratio"]),
        (replace(CYCLE, bytes_written=2399), ["bytes_ratio"]),
    ],
)
def test_broken_promises_are_found(cycle: Cycle, expected: list[str]):
    assert broken(CYCLE, cycle) == expected


def test_stalls_of_small_models_are_not_judged():
    assert broken(replace(CYCLE, stall_s=9.0), num_params=1_000_000) == []


def test_speeds_are_bytes_over_seconds():
    report = summarise(10_000_000, [CYCLE, CYCLE], plain_write_s=0.5, idle_step_s=0.2)
    assert report["outer_bytes_per_s"] == 800 / 2
    assert report["inner_bytes_per_s"] == 1600 / 4
    assert report["plain_bytes_per_s"] == 800 / 0.5
    assert len({len(row) for row in make_rows(report)}) == 1


@pytest.mark.slow
def test_a_small_model_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "report.json"
    flags = ["--params", "20K", "--threads", "1", "--dir", str(tmp_path), "--json", str(path)]
    code = run(["bench", "checkpoint", "--quick", *flags])
    assert code == ExitCode.OK, capsys.readouterr().err
    report = json.loads(path.read_text())
    assert report["outer_stall_s"] == 0
    assert 1 <= report["bytes_ratio"] <= 1.02
    assert report["stall_vs_copy"] > 0
    assert len(report["cycles"]) == 3
    assert list(tmp_path.iterdir()) == [path], "what was written is gone"


@pytest.mark.parametrize(
    ("text", "number"),
    [("100M", 100_000_000), ("1.5m", 1_500_000), ("20K", 20_000), ("4096", 4096)],
)
def test_numbers_of_parameters(text: str, number: int):
    assert parse_params(text) == number


@pytest.mark.parametrize("text", ["", "many", "10", "-5M", "1T"])
def test_what_is_no_number_of_parameters_is_told(text: str):
    with pytest.raises(ConfigError, match="--params"):
        parse_params(text)
