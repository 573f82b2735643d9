"""The nodes of a soak run together: who is up, who reaches whom since when, what is in force.

Knows the present; refuses to know what comes next.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak_judge import count_apart, is_one_lineage
from soak_peers import SoakFailed, SoakPeer
from soak_script import LOSS, Plan

from neuroswarm.demo.children import Children
from neuroswarm.demo.launch import HOST, choose_ports, nested
from neuroswarm.identity.token import SwarmToken

STALL_S = 60.0
"""Longest time without a commit while a majority is up and connected."""
START_S = 120.0
HEAL_S = 150.0
"""Longest time after a trouble until all stand on one lineage."""
MAX_LOAD_FACTOR = 3.0
STEP_S = 0.1
SLOW_STATE_S = 3.0
HEARTBEAT_S = 1.0

SETTINGS = {
    "heartbeat.interval_s": HEARTBEAT_S,
    "rounds.genesis_wait_s": 10.0,
    "rounds.min_grace_s": 0.5,
    "rounds.collect_deadline_s": 8.0,
    "rounds.mute_after_s": 8.0,
    "rounds.patience_s": 0.5,
    "rounds.pull_timeout_s": 5.0,
    "rounds.pull_stall_s": 2.0,
    "diloco.inner_steps": 30,
    "diloco.inner_steps_min": 1,
    "training.dim": 32,
    "training.num_layers": 2,
    "training.num_heads": 2,
    "training.context": 64,
    "training.batch_size": 4,
    "training.warmup_steps": 20,
    "training.eval_batches": 4,
    "data.max_bytes": 2_000_000,
    "resources.max_cpu_threads": 1,
    "resources.device": "cpu",
    "network.host": HOST,
    "network.announce_host": HOST,
    "checkpoint.max_checkpoints": 2,
}
"""Rounds of a few seconds, most of which the nodes spend waiting for their data."""


class SoakSwarm:
    """All nodes, numbered from 0."""

    def __init__(self, plan: Plan, folder: Path, children: Children) -> None:
        """Prepare to work in `folder`; nothing is started."""
        self.plan = plan
        self.children = children
        self.peers = _make_peers(plan, folder)
        self.cut_off: frozenset[int] = frozenset()
        """The smaller group of a partition in force."""
        self.timeouts = 0.0
        self.slow: int | None = None
        """The node to which states come slowly."""
        self.last_commit_at = 0.0
        """By a round's end, not by a download."""
        self.longest_gap_s = 0.0
        """Without a commit, while a majority was up and connected."""
        self._whole_since: float | None = None
        """From when on a majority has been up and connected."""
        self._met: dict[tuple[int, int], float] = {}
        self._changed_at = 0.0
        """When somebody was last parted from another, or met: then lineages may change."""
        self._ordered: dict[int, Any] = {}
        self._num_read = [0] * plan.num_nodes

    def ready(self) -> list[int]:
        """The nodes that are up and take part."""
        return [i for i, peer in enumerate(self.peers) if peer.is_ready]

    @property
    def is_all_up(self) -> bool:
        """Whether every node is up and reaches every other one."""
        return len(self.ready()) == len(self.peers) and not self.cut_off

    @property
    def round(self) -> int:
        """The newest round anywhere."""
        return max(peer.track.tip for peer in self.peers)

    def is_one(self, since: float) -> bool:
        """Whether all are up, on one lineage, and have got further since then."""
        return self.is_all_up and is_one_lineage([peer.track for peer in self.peers], since)

    def load_factor(self) -> float:
        """How much longer than on an idle machine things may take: 1 to 3."""
        share = os.getloadavg()[0] / (os.cpu_count() or 1)
        return min(MAX_LOAD_FACTOR, max(1.0, share))

    # -- what is in force --------------------------------------------------------------

    def start(self, number: int, *, is_new: bool, is_founder: bool = False) -> None:
        """Start a node; what is in force holds for it from its first message."""
        self._order(number)
        self.peers[number].start(self.children, is_new=is_new, is_founder=is_founder)

    def give_orders(self) -> None:
        """Tell all nodes what is in force now."""
        for number in range(len(self.peers)):
            self._order(number)

    def _order(self, number: int) -> None:
        is_out = number in self.cut_off
        others = [p for i, p in enumerate(self.peers) if (i in self.cut_off) != is_out]
        ports = [port for p in others for port in (p.ports.grpc, p.ports.heartbeat)]
        orders = {
            "blocked": ports,
            "loss": LOSS,
            "timeouts": self.timeouts,
            "slow_state_s": SLOW_STATE_S if number == self.slow else 0.0,
        }
        if self._ordered.get(number) != orders:
            self._ordered[number] = orders
            self.peers[number].order(orders)

    # -- what is seen --------------------------------------------------------------------

    def look(self) -> None:
        """Read everything; SoakFailed if something is not as it should be."""
        for peer in self.peers:
            peer.poll()
        now = time.time()
        self._note_commits()
        self._note_meetings(now)
        factor = self.load_factor()
        self._judge_stall(now, factor)
        self._judge_digests()
        for peer in self.peers:
            is_starting = peer.is_running and peer.life.ready_at is None
            if is_starting and now - peer.life.started_at > START_S * factor:
                raise SoakFailed(f"{peer.name} is not ready {START_S * factor:.0f} s after a start")

    def _note_commits(self) -> None:
        for number, peer in enumerate(self.peers):
            for step in peer.steps[self._num_read[number] :]:
                if not step.is_download:
                    self.last_commit_at = max(self.last_commit_at, step.time)
            self._num_read[number] = len(peer.steps)

    def _note_meetings(self, now: float) -> None:
        ready, before = set(self.ready()), set(self._met)
        for pair in itertools.combinations(range(len(self.peers)), 2):
            one, two = pair
            if {one, two} <= ready and (one in self.cut_off) == (two in self.cut_off):
                self._met.setdefault(pair, now)
            else:
                self._met.pop(pair, None)
        if set(self._met) != before:
            self._changed_at = now

    def _judge_stall(self, now: float, factor: float) -> None:
        ready = self.ready()
        num_out = len(self.cut_off.intersection(ready))
        largest = max(num_out, len(ready) - num_out)
        if 2 * largest <= len(self.peers):
            self._whole_since = None
            return
        if self._whole_since is None:
            self._whole_since = now
        gap_s = now - max(self.last_commit_at, self._whole_since)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        if gap_s > STALL_S * factor:
            raise SoakFailed(f"no round committed for {gap_s:.0f} s, with {largest} nodes together")

    def _judge_digests(self) -> None:
        for (one, two), since in self._met.items():
            peers = self.peers[one], self.peers[two]
            since = max(since, self._changed_at)
            num_apart, allowed = count_apart(peers[0].track, peers[1].track, since)
            if num_apart > allowed:
                names = f"{peers[0].name} and {peers[1].name}"
                tips = [peer.track.tip for peer in peers]
                raise SoakFailed(
                    f"{names} hold different digests for {num_apart} rounds (at most {allowed}), "
                    f"now at rounds {tips[0]} and {tips[1]}, connected "
                    f"for {time.time() - since:.0f} s"
                )


def _make_peers(plan: Plan, folder: Path) -> list[SoakPeer]:
    ports = choose_ports(plan.num_nodes)
    token = SwarmToken(random.Random(f"token {plan.seed}").randbytes(32))
    peers: list[SoakPeer] = []
    for number, own in enumerate(ports):
        bound = {
            "network.port": own.http,
            "network.grpc_port": own.grpc,
            "heartbeat.port": own.heartbeat,
        }
        task = {
            "name": f"node-{number}",
            "seed": plan.seed * 100_000 + number,
            "token": token.text,
            "step_s": STEP_S,
            "settings": nested({**SETTINGS, **bound}),
            "hints": [(HOST, other.heartbeat) for other in ports if other is not own],
        }
        peers.append(SoakPeer(folder / f"node-{number}", own, task))
    return peers


def describe_groups(swarm: SoakSwarm, numbers: Sequence[int]) -> str:
    """A partition, for people: `2,5 | 0,1,3,4`."""
    rest = [i for i in range(len(swarm.peers)) if i not in numbers]
    return " | ".join(",".join(map(str, group)) for group in (numbers, rest))
