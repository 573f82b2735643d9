"""`neuroswarm bench rwkv`: its arithmetic, its promise and its command."""

import json
from pathlib import Path

import pytest
import torch

from neuroswarm.bench.rwkv_bench import wkv_by_matrices
from neuroswarm.bench.rwkv_measures import Measured, check
from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run
from neuroswarm.models.wkv7 import wkv_in_chunks


def test_speeds_are_those_of_the_median_steps():
    measured = Measured(1000, 2048, chunk_s=[0.1, 0.2, 9.0], loop_s=[4.0], lean_s=[2.0])
    assert measured.chunked == pytest.approx(10240)
    assert measured.looped == pytest.approx(512)
    assert (measured.ratio, measured.lean_ratio) == (pytest.approx(20), pytest.approx(10))
    assert measured.to_json()["ratio"] == 20.0


@pytest.mark.parametrize(("loop_s", "holds"), [(10.0, True), (9.9, False)])
def test_what_is_promised_is_the_ratio(loop_s: float, holds: bool):
    (promise,) = check(Measured(1000, 2048, chunk_s=[1.0], loop_s=[loop_s], lean_s=[5.0]))
    assert promise.holds is holds
    assert "(promised: 10)" in promise.said


@pytest.mark.slow
def test_a_quick_run_measures_both_and_promises_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "rwkv.json"
    assert run(["bench", "rwkv", "--quick", "--json", str(path)]) == ExitCode.OK
    report = json.loads(path.read_text())
    measured = report["measured"]
    assert report["promises"] == []
    assert measured["chunked_tokens_per_s"] > measured["looped_tokens_per_s"] > 0
    assert "ratio" in capsys.readouterr().out


def test_what_is_compared_computes_the_same():
    generator = torch.Generator().manual_seed(6)
    r, k, v, a, b = (torch.randn(1, 40, 2, 8, generator=generator) * 0.3 for _ in range(5))
    log_w = -0.6 * torch.rand(1, 40, 2, 8, generator=generator)
    state = torch.randn(1, 2, 8, 8, generator=generator)
    expected = wkv_by_matrices(r, log_w, k, v, a, b, state)
    for one, other in zip(wkv_in_chunks(r, log_w, k, v, a, b, state), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
