"""State folders of the version of protocol 1 (tests/data/README.md): read, and gone on from."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from neuroswarm.checkpoint.state_folder import FORMAT_FILE, open_state_folder
from neuroswarm.checkpoint.store import CheckpointStore
from neuroswarm.clock import SystemClock
from neuroswarm.diloco.rules import Rules
from neuroswarm.testing.waiting import wait_until

ARCHIVE = Path(__file__).parents[1] / "data" / "state_folders_v1.tar.xz"
ROUND = 47
DIGEST = "47b188c9a7ac441ce6772e09cd76b7d925e6e1bc8dda26d1ae649592417ee23e"
ROUNDS_TOGETHER = 2
DEADLINE_S = 120

SETTINGS = {
    "network.name": "upgraded",
    "network.announce_host": "127.0.0.1",
    "training.dim": 8,
    "training.num_layers": 1,
    "training.num_heads": 1,
    "training.context": 16,
    "training.batch_size": 2,
    "training.eval_batches": 1,
    "resources.device": "cpu",
    "resources.max_cpu_threads": 1,
    "heartbeat.interval_s": 0.5,
    "dht.enabled": "false",
    "rounds.genesis_wait_s": 3.0,
}
"""What the nodes were given that has to be given again, and short waits."""


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Where the folders `one` and `two` and the file `text` are."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_former_checkpoint_is_read_with_its_digest(folders: Path, name: str):
    with open_state_folder(folders / name, clock=SystemClock()) as folder:
        found = CheckpointStore(folder.checkpoints_path, 1).load_latest()
    assert found is not None
    assert (found.outer.round, found.outer.digest.hex()) == (ROUND, DIGEST)
    assert found.snapshot is not None, "the node's own work is there too"
    assert (folders / name / FORMAT_FILE).exists(), "from now on it says of which format it is"


def test_rules_that_are_not_marked_as_later_are_those_of_the_first_version(folders: Path):
    found = CheckpointStore(folders / "one" / "checkpoints", 1).load_latest()
    assert found is not None
    named = json.loads(found.outer.rules.to_bytes())
    unmarked = Rules.model_fields.keys() - Rules.later().keys()
    assert unmarked == named.keys(), "a rule that is new needs the mark `Later` (decisions/021)"


class Node:
    """A process that goes on in one of the folders."""

    def __init__(self, folders: Path, name: str, flags: Sequence[str] = ()) -> None:
        self.folder = folders / name
        command = [sys.executable, "-m", "neuroswarm", "node", "--host", "127.0.0.1", "--no-lan"]
        command += ["--port", "0", "--grpc-port", "0", "--heartbeat-port", "0"]
        command += ["--state-dir", str(self.folder), "--data", str(folders / "text"), *flags]
        command += [p for key, value in SETTINGS.items() for p in ("--set", f"{key}={value}")]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
        )

    def listen_for(self, pattern: str) -> re.Match[str]:
        """Read what it says until this comes."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        pytest.fail(f"the node ended with {self.process.wait()}: {''.join(self.said)}")

    def together(self) -> dict[int, str]:
        """Digests after the rounds since the upgrade that both had a part in."""
        lines = (self.folder / "events.jsonl").read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return {
            e["round"]: e["digest"]
            for e in events
            if e["event"] == "commit" and e["round"] > ROUND and len(e["contributions"]) == 2
        }


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_a_former_swarm_goes_on_in_its_round_after_the_upgrade(folders: Path):
    nodes = [Node(folders, "one")]
    try:
        url = nodes[0].listen_for(r"others join with --tracker (http://\S+)")[1]
        nodes.append(Node(folders, "two", ["--tracker", url]))
        for node in nodes:
            resumed = node.listen_for(r"resumed at round (\d+), state (\w+)")
            assert (int(resumed[1]), resumed[2]) == (ROUND, DIGEST[:8])

        def have_gone_on() -> bool:
            one, two = (node.together() for node in nodes)
            return len(one.keys() & two.keys()) >= ROUNDS_TOGETHER

        wait_until(have_gone_on, within_s=DEADLINE_S)
        one, two = (node.together() for node in nodes)
        shared = one.keys() & two.keys()
        assert {r: one[r] for r in shared} == {r: two[r] for r in shared}
        nodes[0].process.send_signal(signal.SIGTERM)
        _, rest = nodes[0].process.communicate(timeout=DEADLINE_S)
        assert nodes[0].process.returncode == 0, rest
    finally:
        for node in nodes:
            node.process.kill()
            node.process.communicate()


@pytest.mark.slow
def test_the_folder_of_a_later_version_is_refused_and_left_as_it_is(folders: Path):
    folder = folders / "one"
    (folder / FORMAT_FILE).write_text("3\n")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    node = Node(folders, "one")
    _, said = node.process.communicate(timeout=DEADLINE_S)
    assert node.process.returncode == 78, said
    assert "was written by a later version of neuroswarm (format 3, this one reads 2)" in said
    assert "Traceback" not in said
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
