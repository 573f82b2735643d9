"""The benchmark of unequal speeds: three nodes as processes, at 1 : 4 : 16, alone and together.

Knows how it is carried out; the arithmetic is in `speeds_measures`.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from neuroswarm.bench.promise import tell
from neuroswarm.bench.slowing import Slowed
from neuroswarm.bench.speeds_measures import Reading, Speeds, count_used, pace_of
from neuroswarm.clock import SystemClock
from neuroswarm.demo.children import Children
from neuroswarm.demo.launch import HOST, Launch, choose_ports, node_command
from neuroswarm.demo.peers import Peer
from neuroswarm.errors import DemoFailed
from neuroswarm.identity.token import SwarmToken

REPORT_VERSION = 1

SETTINGS: Mapping[str, Any] = {
    "diloco.inner_steps": 30,
    "training.dim": 64,
    "training.num_layers": 2,
    "training.context": 64,
    "training.eval_batches": 1,
    "resources.max_cpu_threads": 1,
    "resources.device": "cpu",
    "network.lan": False,
}
"""A small model in short rounds; nothing of it is about speeds."""

READY_S = 240.0
_LOOK_S = 0.5
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What is run."""

    shares: tuple[float, ...] = (0.05, 0.2, 0.8)
    """Of a processor, for each node: 1 : 4 : 16."""
    alone_s: float = 60.0
    settle_s: float = 40.0
    """Together, before speeds are measured: the sizes of steps are found meanwhile."""
    together_s: float = 180.0
    is_judged: bool = True


FULL = Setup()
QUICK = Setup(alone_s=20.0, settle_s=25.0, together_s=60.0)


def run_speeds_bench(
    setup: Setup, environment: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Carry it out; returns the report as JSON values.

    The nodes are measured alone at the same time, each in a swarm of its own, so that the rest
    of the machine is the same as for the nodes together.

    Args:
        setup: What is run.
        environment: Of the processes.
        say: Takes lines for people.

    Raises:
        DemoFailed: a node ended, or did not begin.
    """
    with tempfile.TemporaryDirectory(prefix="neuroswarm-speeds-") as folder:
        place = Path(folder)
        alone, _, way = _run(setup, environment, place / "alone", are_together=False)
        say(f"slowed down by {way}; measured alone")
        together, (trained, used, sizes), _ = _run(
            setup, environment, place / "together", are_together=True
        )
    speeds = Speeds(
        setup.shares,
        tuple(map(pace_of, alone)),
        tuple(map(pace_of, together)),
        trained,
        used,
        tuple(readings[-1].windows for readings in together),
        len(sizes),
        sizes,
    )
    for line in speeds.lines():
        say(line)
    return {
        "version": REPORT_VERSION,
        "setup": asdict(setup),
        "way": way,
        "measured": asdict(speeds)
        | {
            name: getattr(speeds, name)
            for name in ("used_share", "speed_share", "work_share", "busy_share", "is_disturbed")
        },
        "promises": tell(speeds.promises() if setup.is_judged else [], say),
    }


Counts = tuple[int, int, tuple[int, ...]]
"""Tokens trained, tokens used, contributions of each round."""


def _run(
    setup: Setup, environment: Mapping[str, str], folder: Path, *, are_together: bool
) -> tuple[list[list[Reading]], Counts, str]:
    """Readings of each node while it is measured, what all of them did, and how they are slowed."""
    with ExitStack() as stack:
        children = stack.enter_context(Children())
        peers = _make_peers(setup, environment, folder, are_together=are_together)
        for peer in peers:
            peer.start(children)
        _wait_until_ready(peers)
        slowed = [
            stack.enter_context(Slowed(peer.pid, share))
            for peer, share in zip(peers, setup.shares, strict=True)
        ]
        _pass(peers, setup.settle_s if are_together else setup.settle_s / 4)
        before = [_read(peer) for peer in peers]
        _pass(peers, setup.together_s if are_together else setup.alone_s)
        after = [_read(peer) for peer in peers]
        used, sizes = count_used(_commits(peers[-1].state_folder / "events.jsonl"))
    trained = sum(reading.tokens for reading in after)
    readings = [list(pair) for pair in zip(before, after, strict=True)]
    return readings, (trained, used, sizes), slowed[0].way


def _commits(path: Path) -> list[dict[str, Any]]:
    """The commits in an event log; a line that is being written is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [event for event in map(json.loads, lines) if event["event"] == "commit"]


def _make_peers(
    setup: Setup, environment: Mapping[str, str], folder: Path, *, are_together: bool
) -> list[Peer]:
    ports, token = choose_ports(len(setup.shares)), SwarmToken.new().text
    peers = []
    for k, own in enumerate(ports):
        name = "speeds" if are_together else f"speeds-{k}"
        launch = Launch({**SETTINGS, "network.name": name}, environment, token)
        place = folder / f"node{k}"
        trackers = [ports[-1].url] if are_together and own is not ports[-1] else []
        command = node_command(launch, place, own, trackers)
        peers.append(Peer(place, command, own, clock=SystemClock()))
    return peers


def _wait_until_ready(peers: list[Peer]) -> None:
    until = time.monotonic() + READY_S
    while not all(peer.is_ready() for peer in peers):
        if time.monotonic() > until:
            raise DemoFailed(f"not every node was ready within {READY_S:g} s")
        _check(peers)
        time.sleep(_LOOK_S)


def _pass(peers: list[Peer], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _check(peers)
        time.sleep(_LOOK_S)


def _check(peers: list[Peer]) -> None:
    ended = [peer.name for peer in peers if peer.has_ended()]
    if ended:
        raise DemoFailed(f"ended by itself: {', '.join(ended)}")


def _read(peer: Peer) -> Reading:
    """What a node says of itself now; a slow one takes a while to say it."""
    connection = http.client.HTTPConnection(HOST, peer.ports.http, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        status = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DemoFailed(f"{peer.name} does not tell its status: {error}") from error
    finally:
        connection.close()
    hardware = status["hardware"]
    times = psutil.Process(peer.pid).cpu_times()
    return Reading(
        time.monotonic(),
        status["total_tokens_processed"],
        hardware["windows_per_step"],
        times.user + times.system,
        status["step_s"],
    )
