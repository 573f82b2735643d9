"""The arithmetic of the benchmark of unequal speeds, and how processes are slowed down for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from neuroswarm.bench import slowing
from neuroswarm.bench.slowing import Slowed
from neuroswarm.bench.speeds_measures import Pace, Reading, Speeds, count_used, pace_of
from neuroswarm.hardware.small_groups import SmallGroup

SHARES = (0.05, 0.2, 0.8)


def paces(*tokens: float, got: float = 1.0, in_steps: float = 1.0) -> tuple[Pace, ...]:
    return tuple(Pace(t, got * s, in_steps) for t, s in zip(tokens, SHARES, strict=True))


ALONE = paces(100.0, 400.0, 1600.0)
SPEEDS = Speeds(
    SHARES, ALONE, paces(90.0, 360.0, 1530.0), tokens_trained=1000, tokens_used=900,
    windows=(8, 32, 128), rounds=3, set_sizes=(3, 2, 3),
)  # fmt: skip


def test_shares_and_what_is_said_of_them():
    assert SPEEDS.used_share == 0.9
    assert SPEEDS.speed_share == (90 + 360 + 1530) / 2100
    assert not SPEEDS.is_disturbed
    said = "\n".join(SPEEDS.lines())
    assert "speeds 1.0 : 4.0 : 16.0" in said
    assert "3 rounds, 2 of them with everybody's contribution" in said
    assert [promise.holds for promise in SPEEDS.promises()] == [True, True]


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"tokens_trained": 1001}, [False, True]),
        ({"together": paces(90.0, 360.0, 1400.0)}, [True, False]),
        # Other programs took half of the machine: half of the tokens is as much as there can be,
        ({"together": paces(50.0, 200.0, 800.0, got=0.5)}, [True, True]),
        # but not less,
        ({"together": paces(50.0, 100.0, 700.0, got=0.5)}, [True, False]),
        # nor if the processor time was not even asked for.
        ({"together": paces(50.0, 200.0, 800.0, got=0.5, in_steps=0.5)}, [True, False]),
    ],
)
def test_promises_can_be_broken(changes: dict[str, Any], holds: list[bool]):
    assert [promise.holds for promise in replace(SPEEDS, **changes).promises()] == holds


def test_a_pace_is_what_happened_between_two_readings():
    first = Reading(10.0, 100, processor_s=5.0, step_s=2.0)
    last = Reading(30.0, 500, processor_s=9.0, step_s=12.0)
    assert pace_of([first, last]) == Pace(20.0, 0.2, 0.5)
    assert pace_of([first]) == pace_of([]) == Pace(0.0, 0.0, 0.0)


def test_a_round_that_was_repaired_counts_once():
    commits = [
        {"round": 1, "used_tokens": [10]},
        {"round": 2, "used_tokens": [10, 20]},
        {"round": 2, "used_tokens": [10, 20, 30]},
    ]
    assert count_used(commits) == (70, (1, 3))


@pytest.mark.parametrize("version", [1, 2])
def test_where_no_group_can_be_made_nothing_is_left_behind(tmp_path: Path, version: int):
    base = tmp_path / "sys/fs/cgroup"
    lines = "0::/own\n" if version == 2 else "1:cpu,cpuacct:/own\n2:memory:/own\n"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    folders = [base / "own"] if version == 2 else [base / "cpu/own", base / "memory/own"]
    for folder in folders:
        folder.mkdir(parents=True)
    with pytest.raises(OSError, match="no control group of cpu"):
        SmallGroup.make(cpus=0.5, root=tmp_path)  # a folder of nobody's kernel has no such files
    assert [list(folder.iterdir()) for folder in folders] == [[] for _ in folders]


@pytest.fixture
def busy() -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_a_process_that_is_stopped_in_turn_works_a_share_of_the_time(
    busy: psutil.Process, monkeypatch: pytest.MonkeyPatch
):
    def refuse(**_limits: float) -> SmallGroup:
        raise OSError("not here")

    monkeypatch.setattr(slowing.SmallGroup, "make", refuse)
    states: set[str] = set()
    with Slowed(busy.pid, 0.3) as slowed:
        assert "SIGSTOP" in slowed.way
        while not {psutil.STATUS_STOPPED, psutil.STATUS_RUNNING} <= states:
            states.add(busy.status())
    assert busy.status() != psutil.STATUS_STOPPED  # it is left running


def test_a_real_group_holds_a_process_back(busy: psutil.Process):
    with Slowed(busy.pid, 0.2) as slowed:
        if "SIGSTOP" in slowed.way:
            pytest.skip("no control group can be made here")
        assert slowed._group is not None
        stat = slowed._group._folders[0] / "cpu.stat"

        def throttled() -> int:
            pairs = dict(line.split() for line in stat.read_text().splitlines())
            return int(pairs["nr_throttled"])

        while throttled() < 3:
            busy.status()
