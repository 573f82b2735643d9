"""One of two cores and 1 GiB, as a container gets them: threads, batch and memory fit.

The limits are those of real control groups; skipped where none can be made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.hardware.small_groups import SmallGroup

GIB = 1024**3


@pytest.fixture
def container() -> Iterator[SmallGroup]:
    try:
        group = SmallGroup.make(cpus=1.0, memory_bytes=GIB)
    except OSError as error:
        pytest.skip(f"no control group with limits can be made here: {error}")
    with group:
        yield group


def run_in(group: SmallGroup, folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("small_machine.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder / "state"), "3"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        group.add(process.pid)
        out, err = process.communicate("go\n", timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err[-3000:]
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_node_fits_into_one_core_and_a_gibibyte(container: SmallGroup, tmp_path: Path):
    told = run_in(container, tmp_path)
    hardware = told["hardware"]
    assert told["ended"] == "3 rounds"
    assert told["torch_threads"] == hardware["num_threads"] == hardware["num_cores"] == 1
    assert hardware["cpu_quota"] == 1.0
    assert hardware["device_class"] == "rpi"
    assert hardware["windows_per_step"] == hardware["start_windows"] == 8
    assert told["tokens"] >= 3 * 5 * 8 * 128
    assert hardware["memory_budget_mb"] < 1024
    assert told["peak_bytes"] < GIB
    assert container.count_killed() in (0, None)
