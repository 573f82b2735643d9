"""The join benchmark: real processes on loopback, a joiner on a slow link, a donor that is killed.

Knows how a case is carried out; what is promised is in `join_measures`.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from neuroswarm.bench.join_child import Spec
from neuroswarm.bench.join_measures import Joined, check, check_transfer, measure, to_json
from neuroswarm.bench.join_transfer import measure_transfer
from neuroswarm.bench.promise import Promise, tell
from neuroswarm.demo.children import Children, Command
from neuroswarm.demo.events import Committed, Event, Published, parse_event
from neuroswarm.errors import DemoFailed
from neuroswarm.testing.waiting import wait_until

HOST = "127.0.0.1"
NUM_DONORS = 3
WARM_UP_ROUNDS = 2
"""Rounds of all donors together before the joiner starts."""

START_S = 120.0
BASE_MB = 450
BYTES_PER_PARAM = 48
"""Of a node that trains, at the peak, as `neuroswarm bench memory` measures it."""
KILL_AT_PERCENT = 40.0
REPORT_VERSION = 1
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    """One joiner."""

    name: str
    num_params: int
    mbit: float
    """Of the joiner's link: all that it is told passes through it."""
    step_s: float
    """Least time of an inner step of the donors, seconds; 8 of them make a round."""
    kills_donor: bool = False
    inner_steps: int = 8
    is_transfer_only: bool = False
    has_checkpoints: bool = False
    """Whether its nodes write them; else their disks are left alone."""
    max_retained_states: int = 2

    @property
    def needed_mb(self) -> int:
        """Memory that its processes need, as measured: MB."""
        millions = self.num_params / 1e6
        if self.is_transfer_only:
            return int(500 + 20 * millions)
        return int((NUM_DONORS + 1) * (BASE_MB + BYTES_PER_PARAM * millions))

    @property
    def physical_s(self) -> float:
        """Seconds that the state takes on the link alone."""
        return 64 * self.num_params / (1e6 * self.mbit)


QUICK = (Case("1M at 20 Mbit/s, a donor killed", 1_000_000, 20, 0.4, kills_donor=True),)
FULL = (
    Case("1M at 10 Mbit/s", 1_000_000, 10, 1.0),
    Case("10M at 10 Mbit/s", 10_000_000, 10, 8.0),
    Case("10M at 40 Mbit/s, a donor killed", 10_000_000, 40, 3.0, kills_donor=True),
    Case("100M at 100 Mbit/s", 100_000_000, 100, 10.0),
    Case("100M at 100 Mbit/s, the transfer alone, a donor killed", 100_000_000, 100, 0.0,
         kills_donor=True, is_transfer_only=True),
)  # fmt: skip


class Node:
    """One process of a case."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        self.ports = [_free_port(), _free_port(), _free_port()]
        # As the command line has it for a node (`cli.allocator`).
        self._environment = {"MALLOC_ARENA_MAX": "2", **environment}

    @property
    def url(self) -> str:
        """For the trackers of others."""
        return f"http://{HOST}:{self.ports[0]}"

    @property
    def go(self) -> Path:
        """The file for which a joiner waits."""
        return self.folder / "go"

    def start(
        self, children: Children, case: Case, trackers: Sequence[str], mbit: float | None = None
    ) -> None:
        """Start it; one with a slow link waits for `go`."""
        spec = Spec(
            str(self.folder), self._config(case, trackers), case.num_params, case.step_s, mbit,
            waits_for=None if mbit is None else str(self.go),
        )  # fmt: skip
        arguments = [sys.executable, "-m", "neuroswarm.bench.join_child", spec.encode()]
        self.process = children.start(Command(arguments, self._environment, self.folder / "log"))

    def milestones(self) -> list[dict[str, Any]]:
        """What it wrote down so far; DemoFailed if it ended."""
        if self.process.poll() not in (None, -9):
            raise DemoFailed(f"{self.folder.name} ended: {self._last_line()}")
        path = self.folder / "milestones.jsonl"
        text = path.read_text("ascii") if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def has(self, what: str) -> bool:
        """Whether it wrote that down."""
        return any(line["what"] == what for line in self.milestones())

    def events(self) -> list[Event]:
        """Its event log."""
        path = self.folder / "state" / "events.jsonl"
        text = path.read_text("ascii") if path.exists() else ""
        found = (parse_event(line) for line in text.split("\n")[:-1])
        return [event for event in found if event is not None]

    def rounds(self) -> list[Committed]:
        """Rounds that it committed."""
        return [event for event in self.events() if isinstance(event, Committed)]

    def _config(self, case: Case, trackers: Sequence[str]) -> dict[str, Any]:
        http, grpc, heartbeat = self.ports
        written = {} if case.has_checkpoints else {"daily_write_mb": 1}
        steps = {f"inner_steps{end}": case.inner_steps for end in ("", "_min", "_max")}
        return {
            "network": {
                "host": HOST, "port": http, "grpc_port": grpc, "trackers": list(trackers),
                "announce_host": HOST, "name": "join",
            },
            "heartbeat": {"interval_s": 1.0, "port": heartbeat},
            "diloco": {**steps, "auto_scale": False},
            "rounds": {
                "max_retained_states": case.max_retained_states, "pull_timeout_s": 600.0,
                "genesis_wait_s": START_S,
            },
            "checkpoint": {"interval_s": 36_000.0, "max_checkpoints": 1, **written},
            "training": {
                "batch_size": 4, "context": 16, "eval_batches": 1, "weight_decay": 0.0,
                "warmup_steps": 0,
            },
            "resources": {
                "device": "cpu", "max_cpu_threads": 1, "available_memory_mb": 1024,
                "memory_to_disk": "on",
            },
            "state_dir": str(self.folder / "state"),
        }  # fmt: skip

    def _last_line(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def run_cases(
    cases: Sequence[Case], environment: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Carry out the cases, one after the other.

    Args:
        cases: Which.
        environment: Of the processes.
        say: Takes lines for people.

    Returns:
        The report, as JSON values.

    Raises:
        DemoFailed: a node ended, or something took much longer than it may.
    """
    results: list[dict[str, Any]] = []
    promises: list[dict[str, Any]] = []
    left_out: list[str] = []
    for case in cases:
        free_mb = psutil.virtual_memory().available // MB
        if free_mb < case.needed_mb:
            left_out.append(f"{case.name}: needs {case.needed_mb} MB of memory, {free_mb} are free")
            say(f"left out: {left_out[-1]}")
            continue
        say(f"{case.name}: the state takes {case.physical_s:.1f} s on the link alone")
        measured, checked = _carry_out(case, environment, say)
        results.append({"case": asdict(case), **measured})
        promises += tell(checked, lambda line: say(f"  {line}"))
    if not results:
        raise DemoFailed(f"nothing was measured; {'; '.join(left_out)}")
    return {
        "version": REPORT_VERSION,
        "results": results,
        "promises": promises,
        "left_out": left_out,
    }


def _carry_out(
    case: Case, environment: Mapping[str, str], say: Callable[[str], None]
) -> tuple[dict[str, Any], list[Promise]]:
    if case.is_transfer_only:
        moved = measure_transfer(case.num_params, case.mbit, kills_donor=case.kills_donor)
        return asdict(moved), check_transfer(case.name, moved)
    with tempfile.TemporaryDirectory(prefix="neuroswarm-join-") as folder:
        joined = _run_case(case, Path(folder), environment, say)
    return to_json(joined), check(case.name, joined, is_disturbed=case.kills_donor)


def _run_case(
    case: Case, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> Joined:
    with ExitStack() as stack:
        children = stack.enter_context(Children())
        donors = [Node(folder / f"donor{k}", environment) for k in range(NUM_DONORS)]
        first, joiner = donors[0], Node(folder / "joiner", environment)
        for donor in donors:
            donor.start(children, case, [first.url] if donor is not first else [])
        joiner.start(children, case, [first.url, donors[1].url], case.mbit)
        with _patience("the donors to hold a state"):
            wait_until(lambda: all(donor.has("state") for donor in donors), within_s=START_S)
        round_s = START_S + 4 * case.inner_steps * case.step_s
        with _patience("the donors to train"):
            wait_until(lambda: _num_full(first) >= WARM_UP_ROUNDS, within_s=4 * round_s)
        joiner.go.touch()
        say("  the joiner starts")
        if case.kills_donor:
            with _patience("the middle of the download"):
                wait_until(lambda: _percent(joiner) >= KILL_AT_PERCENT, within_s=10 * round_s)
            donors[2].process.kill()
            say(f"  donor killed at {_percent(joiner):.0f} %")
        with _patience("the joiner to hold the state"):
            wait_until(lambda: joiner.has("state"), within_s=START_S + 5 * case.physical_s)
        say("  the joiner holds the state")
        me = next(m["node_id"] for m in joiner.milestones() if m["what"] == "state")
        with _patience("the joiner to contribute"):
            wait_until(lambda: any(me in c.signers for c in first.rounds()), within_s=6 * round_s)
        return _measure(case, donors, joiner)


def _measure(case: Case, donors: Sequence[Node], joiner: Node) -> Joined:
    peaks = [
        m["peak_mb"]
        for node in (*donors, joiner)
        for m in node.milestones()
        if m["what"] == "memory"
    ]
    try:
        return measure(
            joiner.milestones(),
            donors[0].rounds(),
            [event for event in joiner.events() if isinstance(event, Published)],
            bandwidth_mbit=case.mbit,
            peak_mb=max(peaks, default=0),
        )
    except ValueError as error:
        raise DemoFailed(f"{case.name}: {error}") from error


def _num_full(node: Node) -> int:
    return sum(len(commit.signers) == NUM_DONORS for commit in node.rounds())


def _percent(node: Node) -> float:
    told = [m["percent"] for m in node.milestones() if m["what"] == "progress"]
    if node.has("state"):
        return 100.0
    return max(told, default=0.0)


@contextmanager
def _patience(what: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise DemoFailed(f"waited for {what}: {error}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
