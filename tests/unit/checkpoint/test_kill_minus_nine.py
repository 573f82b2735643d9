"""200 times kill -9 at a random moment: every restart reaches what was announced as durable."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NURSERY = Path(__file__).with_name("kill_nursery.py")
KILLS = 200


@pytest.mark.slow
@pytest.mark.timeout(240)  # some 20 s alone on two cores
def test_a_killed_writer_loses_nothing_that_was_durable(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, str(NURSERY), str(tmp_path), "4", str(KILLS)],
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    seen = json.loads(ended.stdout)
    assert seen["durable"] > KILLS / 2, "rounds were written in most of the lives"
    assert seen["writing"] > KILLS / 20, "kills hit the writing itself"
    assert seen["apart"] > 0, "some hit between the two files of a round"
