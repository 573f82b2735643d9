"""The examples, each as two processes that find each other and train one model."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.testing.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 150
"""For all that the processes do; most of it is importing torch and its friends."""

PLENTY = 1_000_000
"""Steps: the processes train until they are interrupted."""

NEEDS = {"plain_loop": "torch", "hf_trainer": "accelerate", "lightning_module": "lightning"}


@dataclass
class Example:
    """One process, what it has said so far, and its state folder."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path

    def commits(self) -> list[dict[str, Any]]:
        """The commits in its event log; a line that is being written is left for later."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == "commit"]


@contextmanager
def example(name: str, folder: Path, *arguments: str) -> Iterator[Example]:
    """An example that runs until the end of the block."""
    folder.mkdir()
    log = folder / "log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    environment |= {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--steps", str(PLENTY)]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*command, "--state-dir", str(folder / "state"), *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment | {"HF_HUB_OFFLINE": "1"},
            cwd=folder,
        )
    try:
        yield Example(process, log, folder / "state")
    finally:
        process.kill()
        process.wait()


def find_free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def have_used_each_other(examples: list[Example]) -> bool:
    """Whether each has used work of the other, and both know the digest of one round."""
    for one in examples:
        assert one.process.poll() is None, one.log.read_text()
    commits = [one.commits() for one in examples]
    rounds = [{event["round"] for event in of_one} for of_one in commits]
    are_used = all(any(event["foreign_used"] for event in of_one) for of_one in commits)
    return are_used and bool(set.intersection(*rounds))


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
@pytest.mark.parametrize("name", NEEDS)
def test_two_processes_of_an_example_train_one_model(name: str, tmp_path: Path):
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    port = str(find_free_port())  # known beforehand, so that both import torch at the same time
    arguments = (("--port", port), ("--tracker", f"http://127.0.0.1:{port}"))
    with (
        example(name, tmp_path / "one", *arguments[0]) as one,
        example(name, tmp_path / "two", *arguments[1]) as two,
    ):
        both = [one, two]
        wait_until(lambda: have_used_each_other(both), within_s=DEADLINE_S, what=name)
        for each in both:
            each.process.send_signal(signal.SIGINT)
        for each in both:
            each.process.wait(timeout=DEADLINE_S)
        logs = [{e["round"]: e["digest"] for e in each.commits()} for each in both]
        shared = set.intersection(*map(set, logs))
        assert shared
        assert all(len({log[round_] for log in logs}) == 1 for round_ in shared)
        for each in both:
            assert "takes the inner steps, 0 so far" in each.log.read_text()
            assert "no last checkpoint" not in each.log.read_text()
            assert "node failed" not in each.log.read_text()
