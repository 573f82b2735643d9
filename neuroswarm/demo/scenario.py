"""The whole demo: the swarm, what it is compared with, the report.

Knows the order of things; each part knows the thing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.demo import measures
from neuroswarm.demo.children import Children
from neuroswarm.demo.display import Display
from neuroswarm.demo.evaluation import Examiner
from neuroswarm.demo.events import PeerRecord
from neuroswarm.demo.launch import Launch, choose_ports, hostile_command, node_command
from neuroswarm.demo.peers import Peer
from neuroswarm.demo.report import Comparison, make_report
from neuroswarm.demo.swarm_run import AWAY_S, Script, SwarmRun
from neuroswarm.errors import ConfigError

MAX_PEERS = 16
TRACKERS_EACH = 2
"""Peers whose address a peer is given: the first ones."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for.

    Raises:
        ConfigError: out of range; says what is possible.
    """

    peers: int = 4
    minutes: float = 3.0
    num_hostile: int = 0
    num_killed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.peers <= MAX_PEERS:
            raise ConfigError(f"peers out of range: {self.peers} (2 to {MAX_PEERS})")
        if not 0 <= self.num_hostile <= self.peers // 4:
            raise ConfigError(
                f"hostile peers out of range: {self.num_hostile} of {self.peers} "
                "(a swarm bears a quarter)"
            )
        if not 0 <= self.num_killed < self.num_honest:
            raise ConfigError(
                f"peers to kill out of range: {self.num_killed} (0 to {self.num_honest - 1})"
            )
        shortest = 4 * AWAY_S / 60 if self.num_killed else 0.0
        if self.minutes <= shortest:
            raise ConfigError(f"minutes out of range: {self.minutes:g} (more than {shortest:.2g})")

    @property
    def num_honest(self) -> int:
        """Peers that do as they should."""
        return self.peers - self.num_hostile

    @property
    def is_disturbed(self) -> bool:
        """Whether there is anything that the swarm has to bear."""
        return bool(self.num_hostile or self.num_killed)


class Scenario:
    """Runs what was wished and reports it.

    Args:
        wishes: How many peers, how long, what happens to them.
        launch: What the peers have in common.
        folder: Where the peers keep their state and logs; exists.
        display: Shows the runs.
        clock: Measures them.
    """

    def __init__(
        self, wishes: Wishes, launch: Launch, folder: Path, *, display: Display, clock: Clock
    ) -> None:
        self._wishes = wishes
        self._launch = launch
        self._folder = folder
        self._display = display
        self._clock = clock
        self._config = launch.config

    def run(self) -> dict[str, Any]:
        """Run the swarm, then what it is compared with; returns the report.

        A quiet swarm is compared with one peer alone, a disturbed one with the same swarm
        without hostile and killed peers; both for as many inner steps as the peer took that
        took most, which is the founder, who begins before the others.

        Raises:
            DemoFailed: a process failed, or nothing moved on.

        Cancellation: KeyboardInterrupt and SystemExit leave no process behind.
        """
        wishes = self._wishes
        swarm = self._make_swarm("swarm", wishes.peers, wishes.num_hostile)
        victims = tuple(peer.name for peer in swarm[1 : 1 + wishes.num_killed])
        title = (
            self._describe_trouble() if wishes.is_disturbed else f"{wishes.peers} peers together"
        )
        records = self._carry_out(swarm, Script(title, minutes=wishes.minutes, victims=victims))
        steps = max(measures.last_steps([r for r in records if not r.is_hostile]))
        compare = self._compare_with_reference if wishes.is_disturbed else self._compare_with_one
        return compare(swarm[0], records, max(1, steps))

    def _describe_trouble(self) -> str:
        wishes = self._wishes
        return f"{wishes.peers} peers, {wishes.num_hostile} hostile, {wishes.num_killed} killed"

    def _compare_with_one(
        self, peer: Peer, records: list[PeerRecord], steps: int
    ) -> dict[str, Any]:
        training = self._config.training
        assert training.batch_size is not None, "the demo's settings name one"
        tokens = steps * training.batch_size * training.context
        (alone,) = self._make_swarm("alone", 1, 0, tokens=tokens)
        script = Script("one peer alone", steps=steps, ends_by_itself=True)
        alone_records = self._carry_out([alone], script)
        examiner = Examiner(self._config)
        losses = Comparison(
            swarm=examiner.loss_of_swarm(peer.state_folder),
            alone=examiner.loss_of_peer(alone.state_folder),
        )
        curve = _curve_values(alone_records)
        return {**make_report(records, losses), "loss_curve_alone": curve}

    def _compare_with_reference(
        self, peer: Peer, records: list[PeerRecord], steps: int
    ) -> dict[str, Any]:
        num_peers = self._wishes.num_honest
        swarm = self._make_swarm("reference", num_peers, 0)
        half_a_round = self._config.get_diloco_inner_steps(num_peers) // 2  # the nearest end
        title = f"{num_peers} peers for comparison"
        script = Script(title, steps=max(1, steps - half_a_round))
        reference = self._carry_out(swarm, script)
        examiner = Examiner(self._config)
        losses = Comparison(
            swarm=examiner.loss_of_swarm(peer.state_folder),
            reference=examiner.loss_of_swarm(swarm[0].state_folder),
        )
        return {**make_report(records, losses), "loss_curve_reference": _curve_values(reference)}

    def _carry_out(self, peers: list[Peer], script: Script) -> list[PeerRecord]:
        with Children() as children:
            run = SwarmRun(
                peers, script, children=children, display=self._display, clock=self._clock
            )
            return run.run()

    def _make_swarm(
        self, name: str, num_peers: int, num_hostile: int, *, tokens: int | None = None
    ) -> list[Peer]:
        """Peers in `folder/name`, not started; the hostile ones come last."""
        ports = choose_ports(num_peers)
        peers = []
        for i in range(num_peers):
            is_hostile = i >= num_peers - num_hostile
            folder = self._folder / name / f"peer-{i + 1}"
            trackers = [known.url for known in ports[:i][:TRACKERS_EACH]]
            if is_hostile:
                command = hostile_command(self._launch, folder, ports[i], trackers)
            else:
                command = node_command(self._launch, folder, ports[i], trackers, tokens)
            peers.append(Peer(folder, command, ports[i], clock=self._clock, is_hostile=is_hostile))
        return peers


def _curve_values(records: list[PeerRecord]) -> list[list[float]]:
    return [[point.steps, point.loss] for point in measures.loss_curve(records)]


def summarise(report: Mapping[str, Any]) -> list[str]:
    """The most telling numbers, a line each."""
    rounds, steps = report["rounds"], _number(report["inner_steps_per_round"], ".1f")
    equal, repairs = report["digests_equal"], report["repairs"]
    num_bytes = _number(report["bytes_per_peer_per_round"], ".0f")
    factor = _number(report["bytes_vs_allreduce"], ".0f")
    latency_s, busy = _number(report["commit_latency_s"], ".2f"), report["utilisation"]
    lines = [
        f"{rounds} rounds of {steps} steps, digests equal after {equal:.1%}, {repairs} repairs",
        f"{report['foreign_contributions_used']} contributions of other peers used",
        f"{num_bytes} bytes per peer and round, an all-reduce at every step sends {factor} x that",
        f"{latency_s} s from the last publication to the new state",
        f"{_number(busy, '.0%')} of the time in inner steps",
    ]
    names = {"loss_swarm": "swarm", "loss_alone": "alone", "loss_reference": "reference"}
    losses = [f"{said} {report[name]:.4f}" for name, said in names.items() if name in report]
    return [*lines, "held-out loss: " + ", ".join(losses)]


def _number(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)
