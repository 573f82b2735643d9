"""Three nodes as processes, found through each other, over gRPC and UDP on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.identity.token import SwarmToken
from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until

ROUNDS = 4
DEADLINE_S = 120
"""For all that the processes do; they mostly need 15 s, most of it for importing torch."""


@dataclass
class Node:
    """One process, and what it says of itself."""

    process: subprocess.Popen[str]
    folder: Path
    url: str = ""

    def status(self) -> dict[str, Any]:
        """What `/status` answers now."""
        with urllib.request.urlopen(f"{self.url}/status", timeout=DEADLINE_S) as reply:
            return json.loads(reply.read())  # type: ignore[no-any-return]

    def commits(self) -> list[dict[str, Any]]:
        """The commits in its event log; a line that is being written is left for later."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == "commit"]

    def read_address(self) -> None:
        """Wait for the line with which it says where it is."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"others join with --tracker (http://\S+)", line):
                self.url = found[1]
                return
        pytest.fail(f"a node ended with {self.process.wait()}")


def start_node(folder: Path, text: Path, *trackers: str, flags: Sequence[str] = ()) -> Node:
    arguments = node_arguments(folder, text, trackers)
    command = [sys.executable, "-m", "neuroswarm", *arguments, *flags]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    log = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    )
    return Node(log, folder)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three nodes that have committed some rounds together and still run."""
    folder = tmp_path_factory.mktemp("swarm")
    text = folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    nodes = [start_node(folder / "one", text)]
    try:
        nodes[0].read_address()
        nodes += [start_node(folder / name, text, nodes[0].url) for name in ("two", "three")]
        for node in nodes[1:]:
            node.read_address()
        wait_until(lambda: have_rounds_together(nodes), within_s=DEADLINE_S)
        yield nodes
    finally:
        for node in nodes:
            node.process.kill()
            node.process.communicate()


def have_rounds_together(nodes: list[Node]) -> bool:
    """Whether all of them know of enough rounds that all three took part in."""
    assert all(node.process.poll() is None for node in nodes), "a node ended"
    shared = set.intersection(*(set(rounds_of_all(node)) for node in nodes))
    return len(shared) >= ROUNDS


def rounds_of_all(node: Node) -> dict[int, str]:
    """Digests after the rounds whose agreed set had three contributions."""
    return {e["round"]: e["digest"] for e in node.commits() if len(e["contributions"]) == 3}


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_processes_use_contributions_of_each_other(swarm: list[Node]):
    for node in swarm:
        commits = node.commits()
        assert sum(event["foreign_used"] for event in commits) >= 2 * ROUNDS
        assert node.status()["foreign_contributions_used"] >= 2 * ROUNDS
        me = node.status()["node_id"]
        assert any(me in e["signers"] and e["foreign_used"] == 2 for e in commits)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_processes_hold_equal_digests(swarm: list[Node]):
    logs = [{event["round"]: event["digest"] for event in node.commits()} for node in swarm]
    shared = sorted(set.intersection(*map(set, logs)))
    differing = [round_ for round_ in shared if len({log[round_] for log in logs}) > 1]
    assert len(shared) >= ROUNDS
    assert not differing
    for node in swarm:
        status = node.status()
        known = {event["round"]: event["digest"] for event in node.commits()}
        assert known.get(status["round"], status["digest"]) == status["digest"]


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_a_newcomer_with_another_token_founds_no_swarm_of_its_own(
    swarm: list[Node], tmp_path: Path
):
    flags = ["--token", SwarmToken.new().text]
    stranger = start_node(tmp_path, Path(__file__), swarm[0].url, flags=flags)
    _, said = stranger.process.communicate(timeout=DEADLINE_S)
    assert stranger.process.returncode == 77, said
    assert "it refuses this node's swarm token" in said.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_a_newcomer_with_another_model_is_told_that_it_is_alone(swarm: list[Node], tmp_path: Path):
    flags = ["--set", "training.dim=32", "--rounds", "1"]
    other = start_node(tmp_path, Path(__file__), swarm[0].url, flags=flags)
    _, said = other.process.communicate(timeout=DEADLINE_S)
    assert other.process.returncode == 0, said
    assert "has this node's token, but trains another model" in said
