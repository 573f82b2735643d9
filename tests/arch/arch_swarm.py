"""The nodes of one run: how they are started by the public command, and what they tell.

Knows nothing of how their machines are made, nor of what is concluded.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arch_machines import Machine

from neuroswarm.demo.children import Children, Command
from neuroswarm.demo.events import Event, LineSplitter, PeerRecord, make_record, parse_event
from neuroswarm.demo.launch import HOST, Ports

ASK_TIMEOUT_S = 2.0

_WORDS = ("river", "stone", "light", "the", "of", "and", "moves", "under", "old", "bridge", "sing")

SETTINGS = {
    "training.dim": 32,
    "training.num_layers": 1,
    "training.num_heads": 2,
    "training.context": 32,
    "training.batch_size": 4,
    "training.eval_batches": 1,
    "diloco.inner_steps": 20,
    "diloco.inner_steps_min": 5,
    "heartbeat.interval_s": 5.0,
    # Slow nodes are waited for: an emulated one takes half a minute for a round on a busy machine.
    "rounds.min_grace_s": 20.0,
    "rounds.collect_deadline_s": 120.0,
    "rounds.mute_after_s": 240.0,
    "rounds.seal_deadline_s": 20.0,
    "rounds.settle_s": 5.0,
    "rounds.ballot_deadline_s": 30.0,
    "rounds.confirm_deadline_s": 20.0,
    "rounds.patience_s": 10.0,
    "rounds.pull_timeout_s": 120.0,
    "rounds.pull_stall_s": 60.0,
    "rounds.genesis_wait_s": 300.0,
    "checkpoint.max_checkpoints": 1,
    "resources.max_cpu_threads": 1,
    "resources.device": "cpu",
}
"""A model of 30,000 parameters; deadlines for nodes that take seconds where others take tenths."""

_NATIVE = {"rounds.genesis_wait_s": 0.0, "guest.cpu_share": 0.25}
"""The first node founds at once, and leaves the processor to the slow ones."""


class ArchFailed(Exception):
    """A node did not do what it should; the message says which and what."""


@dataclass
class Node:
    """One process, and all that it has told."""

    machine: Machine
    folder: Path
    ports: Ports
    process: subprocess.Popen[bytes]
    started_at: float
    """Wall clock, seconds, as all times here."""
    live_at: float | None = None
    """When `/livez` answered first."""
    ready_at: float | None = None
    """When `/readyz` said yes first."""
    _events: list[Event] = field(default_factory=list)
    _lines: LineSplitter = field(default_factory=LineSplitter)
    _position: int = 0

    @property
    def record(self) -> PeerRecord:
        """What its log of events says so far."""
        return make_record(self.machine.name, self._events)

    def look(self) -> None:
        """Read what is new; ArchFailed if it ended."""
        code = self.process.poll()
        if code is not None:
            raise ArchFailed(f"{self.machine.name} ended with {code}: {self.last_lines()}")
        if self.live_at is None and ask(self.ports, "/livez") is not None:
            self.live_at = time.time()
        if self.ready_at is None and ask(self.ports, "/readyz") is not None:
            self.ready_at = time.time()
        self._read_events()

    def status(self) -> dict[str, Any]:
        """Its `/status`."""
        body = ask(self.ports, "/status")
        return {} if body is None else dict(json.loads(body))

    def last_lines(self) -> str:
        """The end of its log."""
        return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-5:])

    def _read_events(self) -> None:
        try:
            with (self.folder / "state" / "events.jsonl").open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        self._position += len(data)
        parsed = map(parse_event, self._lines.feed(data.decode(errors="replace")))
        self._events += [event for event in parsed if event is not None]


class Swarm:
    """Nodes that find one another through the first."""

    def __init__(self, folder: Path, children: Children, *, niceness: int) -> None:
        self._folder = folder
        self._children = children
        self._niceness = niceness
        self._corpus = folder / "corpus.txt"
        self.nodes: list[Node] = []
        folder.mkdir(parents=True)
        self._corpus.write_text(make_corpus())

    def start(self, machine: Machine, ports: Ports) -> Node:
        """Start the public command on that machine; the first founds, the others join it."""
        folder = self._folder / machine.name
        folder.mkdir()
        settings = {**SETTINGS, **({} if self.nodes else _NATIVE)}
        trackers = [node.ports.url for node in self.nodes[:1]]
        flags = ["--port", ports.http, "--grpc-port", ports.grpc]
        flags += ["--heartbeat-port", ports.heartbeat, "--state-dir", folder / "state"]
        flags += ["--host", HOST, "--no-lan", "--data", self._corpus]
        flags += [part for tracker in trackers for part in ("--tracker", tracker)]
        flags += [part for path, v in settings.items() for part in ("--set", f"{path}={v}")]
        command = [str(machine.python), "-m", "neuroswarm", "node", *map(str, flags)]
        nice = ["/usr/bin/env", "nice", "-n", str(self._niceness)]
        started = Command([*nice, *command], machine.environment(), folder / "log")
        process = self._children.start(started)
        node = Node(machine, folder, ports, process, time.time())
        self.nodes.append(node)
        return node

    def look(self) -> None:
        """Read what is new from all."""
        for node in self.nodes:
            node.look()

    def ask_to_leave(self) -> None:
        """SIGTERM to all."""
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)

    def have_left(self) -> bool:
        """Whether all have ended; ArchFailed if one did not end well."""
        codes = [node.process.poll() for node in self.nodes]
        for node, code in zip(self.nodes, codes, strict=True):
            if code:
                raise ArchFailed(f"{node.machine.name} ended with {code} when asked to leave")
        return None not in codes


def run_once(machine: Machine, paths: tuple[Path, ...], say: Callable[[str], None]) -> str:
    """`neuroswarm node` that is to end by itself with code 78; returns its last line."""
    command = [str(machine.python), "-m", "neuroswarm", "node", "--no-lan", "--port", "0"]
    done = subprocess.run(
        command,
        env=machine.environment(*paths),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    line = (done.stderr.strip().splitlines() or [""])[-1]
    say(f"exit code {done.returncode}: {line}")
    if done.returncode != 78 or "SIGILL" not in line:
        raise ArchFailed(f"expected exit code 78 and a line on SIGILL, got {done.returncode}")
    return line


def ask(ports: Ports, path: str) -> bytes | None:
    """What the node answers with 200; None if it does not."""
    connection = http.client.HTTPConnection(HOST, ports.http, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def make_corpus() -> str:
    """Some 100 kB of text in which there is something to learn; the same everywhere."""
    digest = hashlib.shake_256(b"corpus").digest(20_000)
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in digest)
