"""A node on two devices and a node on one, as processes on loopback, in one swarm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until

DEADLINE_S = 240
"""For all that the processes do, most of it importing torch three times; 20 s where others do not
need the processors."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE_S)]


@dataclass
class Node:
    """One process, and what it says of itself."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def log(self) -> str:
        return self.folder.with_suffix(".log").read_text()

    @property
    def url(self) -> str | None:
        """Where it answers; None before it has said so."""
        assert self.process.poll() is None, self.log
        found = re.search(r"others join with --tracker (http://\S+)", self.log)
        return None if found is None else found[1]

    def devices(self) -> list[dict[str, str]]:
        with urllib.request.urlopen(f"{self.url}/status", timeout=DEADLINE_S) as reply:
            devices: list[dict[str, str]] = json.loads(reply.read())["hardware"]["devices"]
        return devices

    def helpers(self) -> list[psutil.Process]:
        """The processes of its further devices."""
        return psutil.Process(self.process.pid).children()

    def commits(self) -> list[dict[str, Any]]:
        assert self.process.poll() is None, self.log
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == "commit"]


def start(folder: Path, text: Path, *trackers: str, **changes: object) -> Node:
    arguments = node_arguments(folder, text, trackers, **changes)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "neuroswarm", *arguments], stderr=log, env=environment
        )
    return Node(process, folder)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Two nodes that run: the first on two devices."""
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    nodes = [start(tmp_path / "two", text, resources__devices="cpu,cpu")]
    try:
        wait_until(lambda: nodes[0].url is not None, within_s=DEADLINE_S, what="its address")
        nodes.append(start(tmp_path / "one", text, str(nodes[0].url)))
        yield nodes
    finally:
        for node in nodes:
            node.process.kill()
            node.process.wait()


def rounds_of_both(nodes: list[Node]) -> dict[int, set[str]]:
    """Digests after the rounds that both know of, and that had both contributions."""
    logs = [
        {e["round"]: e["digest"] for e in node.commits() if len(e["contributions"]) == 2}
        for node in nodes
    ]
    return {round_: {log[round_] for log in logs} for round_ in logs[0].keys() & logs[1].keys()}


def wait_for_rounds(nodes: list[Node], count: int) -> None:
    """Wait until there are so many more rounds of both; they must agree in all."""
    before = len(rounds_of_both(nodes))
    wait_until(
        lambda: len(rounds_of_both(nodes)) >= before + count, within_s=DEADLINE_S, what="rounds"
    )
    digests = rounds_of_both(nodes)
    assert all(len(found) == 1 for found in digests.values()), digests


def test_it_agrees_with_others_whatever_happens_to_a_device(nodes: list[Node]):
    two, _ = nodes
    wait_for_rounds(nodes, 3)
    assert two.devices() == [
        {"device": "cpu", "state": "trains"},
        {"device": "cpu:1", "state": "trains"},
    ]
    (helper,) = two.helpers()
    helper.send_signal(signal.SIGKILL)
    wait_until(lambda: "device cpu:1 is lost" in two.log, within_s=DEADLINE_S, what="the loss")
    wait_for_rounds(nodes, 3)
    assert two.devices()[1]["state"] == "lost: its process was killed by SIGKILL"
    assert not two.helpers()
    assert "Traceback" not in two.log
    assert "training stopped" not in two.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_behind(tmp_path: Path, number: int):
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    node = start(tmp_path / "node", text, resources__devices="cpu,cpu")
    try:
        wait_until(lambda: len(node.commits()) > 1, within_s=DEADLINE_S, what="a round")
        (helper,) = node.helpers()
        node.process.send_signal(number)
        node.process.wait(DEADLINE_S)
        psutil.wait_procs([helper], timeout=DEADLINE_S)
        assert not helper.is_running()
    finally:
        node.process.kill()
        node.process.wait()
