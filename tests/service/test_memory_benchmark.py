"""`neuroswarm bench memory --quick`: real processes, watched from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_nodes_memory_is_measured(tmp_path: Path):
    path = tmp_path / "memory.json"
    arguments = ["bench", "memory", "--quick", "--params", "4000000", "--json", str(path)]
    assert run(arguments) == ExitCode.OK
    measured = json.loads(path.read_text())["measured"]
    # Of so small a model the rest of a node is as large as what is measured; 24 is the floor.
    assert 15 < measured["rest"] <= measured["peak"] < 110
    assert measured["floor"] == 24
    assert measured["peak_ratio"] == pytest.approx(measured["peak"] / 24, abs=0.01)
