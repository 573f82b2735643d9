"""One node of a soak run as its parent sees it: processes, folders, logs, orders.

Knows nothing of the other nodes, nor of what is concluded.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from soak_judge import Step, Track

from neuroswarm.demo.children import Children, Command
from neuroswarm.demo.events import LineSplitter
from neuroswarm.demo.launch import Ports

CHILD = Path(__file__).with_name("soak_node.py")
SETTLE_S = 1.5
BAD_WORDS = re.compile(
    r"Traceback|unhandled|internal error|never retrieved|never awaited|Exception in", re.IGNORECASE
)
_RESUMED = re.compile(r"resumed at round (\d+)")


class SoakFailed(Exception):
    """The swarm did not bear it; the message says what happened to whom."""


@dataclass
class Life:
    """One process of a node."""

    number: int
    state_folder: Path
    started_at: float
    """Wall clock, seconds, as all times here."""
    is_new: bool
    """Whether it began with an empty folder."""
    durable: int | None
    """Round that its folder was said to hold when it began."""
    resumed: int | None = None
    """Round that it said to begin with."""
    ready_at: float | None = None
    contributed_at: float | None = None
    """When it first published."""
    memory: list[tuple[float, float]] = field(default_factory=list)
    """(seconds, MB)"""
    cpu: list[tuple[float, float]] = field(default_factory=list)
    """First and last (seconds, seconds of processor time), once it was ready."""
    faults: Counter[str] = field(default_factory=Counter)
    lags: list[tuple[float, float]] = field(default_factory=list)
    """Mean and longest delay of its event loop in each report, seconds."""


class Tail:
    """The new whole lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._lines = LineSplitter()

    def read(self) -> list[str]:
        """What was added; nothing if there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        return self._lines.feed(data.decode("utf-8", errors="replace"))


class SoakPeer:
    """A node that is started, stopped, killed and started again."""

    def __init__(self, folder: Path, ports: Ports, task: Mapping[str, Any]) -> None:
        """Prepare; `task` is what `soak_node.py` reads, without folder and life."""
        folder.mkdir(parents=True)
        self.name = folder.name
        self.folder = folder
        self.ports = ports
        self.lives: list[Life] = []
        self.steps: list[Step] = []
        """All moves of all lives, as they were read."""
        self.track = Track()
        self.durable: int | None = None
        """Round that this folder's log calls durable."""
        self.is_stopped = False
        self.state_sources: list[int] = []
        """Ports that this life asked for parts of a state."""
        self.is_leaving = False
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Tail(folder / "log")
        self._events = Tail(folder / "none")
        self._old: dict[Path, Tail] = {}
        self._lags_from = 0.0

    @property
    def life(self) -> Life:
        """The newest one."""
        return self.lives[-1]

    @property
    def is_running(self) -> bool:
        """Whether there is a process that is meant to be there."""
        return self._process is not None

    @property
    def is_ready(self) -> bool:
        """Whether it runs, takes part, and is not stopped."""
        return self.is_running and not self.is_stopped and self.life.ready_at is not None

    # -- what is done to it ----------------------------------------------------------

    def start(self, children: Children, *, is_new: bool, is_founder: bool = False) -> None:
        """Start a process, on an empty folder or on the last one; a founder asks nobody."""
        number = len(self.lives)
        if is_new or not self.lives:
            state_folder = self.folder / f"state-{number}"
            self.durable, self.track = None, Track()
        else:
            state_folder = self.life.state_folder
        self._events = self._old.setdefault(state_folder, Tail(state_folder / "events.jsonl"))
        durable = None if is_new else self._find_durable(state_folder)
        self.lives.append(Life(number, state_folder, time.time(), is_new, durable))
        self.state_sources = []
        path = self.folder / "task.json"
        path.write_text(json.dumps(self._make_task(number, is_founder=is_founder)))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
        command = [sys.executable, str(CHILD), "--task", str(path)]
        self._process = children.start(Command(command, environment, self.folder / "log"))

    def _make_task(self, number: int, *, is_founder: bool) -> dict[str, Any]:
        own = {"state_dir": str(self.life.state_folder)}
        return {
            **self._task,
            "settings": {**self._task["settings"], **own},
            "hints": [] if is_founder else self._task["hints"],
            "seed": self._task["seed"] + 1000 * number,
            "life": number,
        }

    def kill(self) -> None:
        """SIGKILL, also to a stopped one; read what it left."""
        assert self._process is not None, "only a running node is killed"
        self._process.kill()
        self._process.wait()
        self._note_end()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; SIGSTOP and SIGCONT are kept in mind, SIGTERM asks it to leave."""
        assert self._process is not None, "only a running node gets signals"
        self._process.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            self.is_stopped = number == signal.SIGSTOP
            self._lags_from = time.time() + SETTLE_S  # being stopped is no lag
        self.is_leaving |= number == signal.SIGTERM

    def finish_leaving(self) -> bool:
        """Whether a node that was asked to leave has left, and well; SoakFailed if not well."""
        code = None if self._process is None else self._process.poll()
        if self._process is not None and code is None:
            return False
        if code:
            raise SoakFailed(f"{self.name} ended with {code} when asked to leave")
        if self._process is not None:
            self._note_end()
        return True

    def order(self, values: Mapping[str, Any]) -> None:
        """Put faults in force in its process, within 0.1 s."""
        new = self.folder / "orders.new"
        new.write_text(json.dumps(values))
        new.replace(self.folder / "orders.json")

    # -- what is read of it ----------------------------------------------------------

    def poll(self) -> None:
        """Read logs and report; SoakFailed if it ended by itself or complains."""
        if self._process is not None and not self.is_leaving:
            code = self._process.poll()
            if code is not None:
                self._read_all()
                raise SoakFailed(f"{self.name} ended by itself with {code}")
        self._read_all()
        if self.is_running:
            self._read_report()

    def measure(self) -> None:
        """Note the process's resident memory and its processor time."""
        if self._process is None or not self.is_ready:
            return
        try:
            process = psutil.Process(self._process.pid)
            resident, times = process.memory_info().rss, process.cpu_times()
        except psutil.Error:
            return
        now = time.time()
        self.life.memory.append((now, resident / 1e6))
        self.life.cpu = [*self.life.cpu[:1], (now, times.user + times.system)]

    def _note_end(self) -> None:
        self._read_report()
        self._process = None
        self.is_stopped = self.is_leaving = False
        self._read_all()

    def _read_all(self) -> None:
        for line in self._log.read():
            if BAD_WORDS.search(line):
                raise SoakFailed(f"{self.name} logs {line.strip()!r}")
            if found := _RESUMED.search(line):
                self._note_resumed(int(found[1]))
        for line in self._events.read():
            self._take(line)

    def _note_resumed(self, round_: int) -> None:
        self.life.resumed = round_
        self.track.rewind(round_)
        if self.life.durable is not None and round_ < self.life.durable:
            raise SoakFailed(
                f"{self.name} starts at round {round_}, but {self.life.durable} was durable"
            )

    def _take(self, line: str) -> None:
        start = line.rfind('{"event"')
        if start < 0:
            return
        try:
            event = json.loads(line[start:])
        except ValueError:  # half a line of a process that was killed
            return
        if event["event"] == "commit":
            step = Step.parse(event)
            self.steps.append(step)
            self.track.add(step)
        elif event["event"] == "durable":
            self.durable = int(event["round"])
        elif event["event"] == "published" and self.life.contributed_at is None:
            self.life.contributed_at = event["time"]

    def _read_report(self) -> None:
        try:
            report = json.loads((self.folder / "report.json").read_text())
        except FileNotFoundError:
            return
        if report["life"] != self.life.number:
            return
        life = self.life
        self.state_sources = report["state_sources"]
        life.faults = Counter(report["faults"])
        if report["state"] == "RUNNING" and report["is_training"] and life.ready_at is None:
            life.ready_at = time.time()
            if life.durable is not None and life.resumed is None:
                raise SoakFailed(f"{self.name} forgot round {life.durable}, which was durable")
        lag = (report["lag_mean_s"], report["lag_max_s"])
        is_telling = life.ready_at is not None and report["time"] >= self._lags_from
        if is_telling and not self.is_stopped and life.lags[-1:] != [lag]:
            life.lags.append(lag)

    def _find_durable(self, state_folder: Path) -> int | None:
        """The round last called durable; where nothing is said, that of the newest checkpoint."""
        if self.durable is not None:
            return self.durable
        manifests = sorted(state_folder.glob("checkpoints/checkpoint-*/manifest.json"))
        try:
            return int(json.loads(manifests[-1].read_text())["body"]["outer"]["round"])
        except (IndexError, KeyError, OSError, ValueError):
            return None
