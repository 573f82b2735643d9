"""Nodes as processes that are asked to leave, or stopped and continued, at any moment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until

DEADLINE_S = 150
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEAVES_WITHIN_S = 8.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DEADLINE_S + 60)]


class Node:
    """One process; what it logs is collected in a thread."""

    def __init__(self, folder: Path, text: Path, *flags: str, code: str = "") -> None:
        command = [sys.executable, *(("-c", code) if code else ("-m", "neuroswarm"))]
        command += [*node_arguments(folder, text), *flags]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """Where others join it."""
        return self.wait_for(r"others join with --tracker (http://\S+)")[1]

    def wait_for(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait for a line that matches, from line number `after` on."""
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            found.extend(m for line in self.lines[after:] if (m := re.search(pattern, line)))
            is_over = self.process.poll() is not None and not self._reader.is_alive()
            assert found or not is_over, (pattern, self.process.returncode, self.lines)
            return bool(found)

        wait_until(is_there, within_s=DEADLINE_S)
        return found[0]

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/status", timeout=DEADLINE_S) as reply:
            return json.loads(reply.read())  # type: ignore[no-any-return]

    def commits(self) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == "commit"]

    def leave(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal and wait for the end: exit code, seconds."""
        asked_at = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout=DEADLINE_S)
        return code, time.monotonic() - asked_at

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)

    def start_one(name: str, *flags: str, code: str = "") -> Node:
        nodes.append(Node(tmp_path / name, text, *flags, code=code))
        return nodes[-1]

    yield start_one
    for node in nodes:
        node.process.kill()
        node.process.wait()
        node._reader.join()
        assert node.process.stderr is not None
        node.process.stderr.close()


def have_rounds_of_all(nodes: Sequence[Node], count: int = 2) -> bool:
    assert all(node.process.poll() is None for node in nodes), [n.lines for n in nodes]
    return all(
        sum(len(e["contributions"]) == len(nodes) for e in node.commits()) >= count
        for node in nodes
    )


def names_of(node: Node) -> list[str]:
    """The ids under which it has started."""
    return re.findall(r"node (\w+) at ", "".join(node.lines))


def announce_and(then: str) -> str:
    """A program that runs the command line, and says so at a place that is hard to leave at."""
    return (
        "import sys; sys.argv = ['neuroswarm', *sys.argv[1:]]\n"
        f"{then}\n"
        "from neuroswarm.__main__ import main; main()\n"
    )


IMPORTING = announce_and(
    "import builtins, time; real = builtins.__import__\n"
    "def slow(name, *args, **kwargs):\n"
    "    if name == 'torch':\n"
    "        print('importing', file=sys.stderr, flush=True); time.sleep(60)\n"
    "    return real(name, *args, **kwargs)\n"
    "builtins.__import__ = slow"
)
LONG_STEP = announce_and(
    "import time\n"
    "from neuroswarm.training.trainer import Trainer\n"
    "def step(self):\n"
    "    print('in a long step', file=sys.stderr, flush=True); time.sleep(60)\n"
    "Trainer.step = step"
)


@pytest.fixture
def hangup_is_heard() -> Iterator[None]:
    """Processes inherit that a signal is ignored, as tests under nohup have it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup_is_heard")
@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_node_that_imports_leaves_at_once(start, number):
    node = start("one", code=IMPORTING)
    node.wait_for("importing")
    code, took_s = node.leave(number)
    assert code == 0
    assert took_s < LEAVES_WITHIN_S


def test_a_node_that_looks_for_its_swarm_leaves(start):
    node = start("one", "--tracker", "http://127.0.0.1:9", "--set", "rounds.genesis_wait_s=1000")
    node.wait_for("nobody found yet")
    code, took_s = node.leave()
    assert (code, took_s < LEAVES_WITHIN_S) == (0, True), (took_s, node.lines[-4:])


def test_a_node_in_a_long_step_leaves_in_time_and_a_second_signal_at_once(start):
    one, two = start("one", code=LONG_STEP), start("two", code=LONG_STEP)
    for node in (one, two):
        node.wait_for("in a long step")
    one.process.send_signal(signal.SIGTERM)
    two.process.send_signal(signal.SIGTERM)
    two.wait_for("stopping")
    code, _ = two.leave()
    assert code == 128 + signal.SIGTERM
    asked_at = time.monotonic()
    assert one.process.wait(timeout=DEADLINE_S) == 0
    assert time.monotonic() - asked_at < LEAVES_WITHIN_S
    one.wait_for("leaving: not everything stopped")


def test_a_node_that_leaves_is_not_waited_for_and_goes_on_where_it_was(start):
    one = start("one")
    others = [start(name, "--tracker", one.url) for name in ("two", "three")]
    nodes = [one, *others]
    wait_until(lambda: have_rounds_of_all(nodes), within_s=DEADLINE_S)
    leaver = others[1]
    me, round_ = leaver.status()["node_id"], leaver.status()["round"]
    code, took_s = leaver.leave()
    left_at = time.time()
    assert (code, took_s < LEAVES_WITHIN_S) == (0, True), (took_s, leaver.lines)
    assert me[:8] not in one.status()["voters"], "told, not missed for three intervals"
    newest = max(event["round"] for event in one.commits())
    wait_until(lambda: one.commits()[-1]["round"] >= newest + 2, within_s=DEADLINE_S)
    after = [e for e in one.commits() if e["time"] > left_at and e["round"] > newest + 1]
    assert after
    assert all(me not in event["signers"] for event in after)
    again = start("three", "--tracker", one.url)
    assert int(again.wait_for(r"resumed at round (\d+)")[1]) >= round_


def test_a_copied_state_folder_makes_a_new_peer_and_harms_nobody(start, tmp_path):
    one = start("one")
    two = start("two", "--tracker", one.url)
    wait_until(lambda: have_rounds_of_all([one, two]), within_s=DEADLINE_S)
    assert two.leave()[0] == 0
    shutil.copytree(tmp_path / "two", tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    two = start("two", "--tracker", one.url)
    wait_until(lambda: len(one.status()["voters"]) == 2, within_s=DEADLINE_S)
    copy = start("copy", "--tracker", one.url)
    copy.wait_for("This node goes on as a new peer with a new key")
    wait_until(lambda: len(names_of(copy)) == 2, within_s=DEADLINE_S)
    renamed = names_of(copy)[-1]
    me = two.status()["node_id"]
    assert renamed != me[:8]

    def all_take_part() -> bool:
        signers = [set(event["signers"]) for event in one.commits()[-3:]]
        return any(me in s and any(o.startswith(renamed) for o in s) for s in signers)

    wait_until(all_take_part, within_s=DEADLINE_S)
    assert (tmp_path / "copy" / "identity.key.cloned-1").exists()
    assert two.process.poll() is None
    assert not [line for line in one.lines if "banned" in line]
    assert copy.leave()[0] == 0


def test_a_stopped_and_continued_process_comes_back_into_the_rounds(start):
    one = start("one")
    others = [start(name, "--tracker", one.url) for name in ("two", "three")]
    nodes = [one, *others]
    wait_until(lambda: have_rounds_of_all(nodes), within_s=DEADLINE_S)
    sleeper = others[1]
    me = sleeper.status()["node_id"]
    sleeper.process.send_signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    wait_until(lambda: me[:8] not in one.status()["voters"], within_s=DEADLINE_S)
    gone = one.commits()[-1]["round"]
    wait_until(
        lambda: one.commits()[-1]["round"] >= gone + 3 and time.monotonic() - stopped_at > 4.0,
        within_s=DEADLINE_S,
    )
    came_back = one.commits()[-1]["round"]
    sleeper.process.send_signal(signal.SIGCONT)
    sleeper.wait_for(r"was suspended for \d+ s: catching up")

    def takes_part_again() -> bool:
        return any(me in e["signers"] for e in one.commits() if e["round"] > came_back + 1)

    wait_until(takes_part_again, within_s=DEADLINE_S)
    digests = [{e["round"]: e["digest"] for e in node.commits()} for node in nodes]
    shared = sorted(set.intersection(*map(set, digests)))
    assert shared
    assert shared[-1] > came_back
    assert not [r for r in shared if len({log[r] for log in digests}) > 1]
    assert sleeper.status()["times_suspended"] >= 1
    assert all(node.status()["repairs"] == 0 for node in nodes)
