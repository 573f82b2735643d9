"""Which runs the attack benchmark makes: rules by attacks by seeds, and what they compare with.

One line an arm: to measure another rule, add one. Refuses to know how a run is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroswarm.bench.adversary import CRAFTS
from neuroswarm.bench.gossip_run import GOSSIP_ATTACKS
from neuroswarm.bench.task import Task
from neuroswarm.config.legality import default_method
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ConfigError

NUM_PEERS = 8
NUM_HOSTILE = 2
REPORTED_SEEDS = (11, 12, 13)
"""Seeds 1, 2 and 3 were used to choose the defaults and are not reported."""
GOSSIP_ROUNDS = 20

NO_ATTACK = "none"
LABEL_FLIP = "label flip"
EVERY_ATTACK = (*CRAFTS, LABEL_FLIP)
TELLING_ATTACKS = ("sign flip", "optimised ALIE", "optimised IPM")

DEFAULT, MEAN, SPARSE = "default", "mean", "sparse"
WHOLE_NODES = "whole nodes"
"""The default rules on nodes that gossip."""
SCREENING = "screening"
"""The default rules, all peers honest, with longer rounds: whom does the screening leave out?"""


@dataclass(frozen=True, slots=True)
class Arm:
    """A set of rules, and the attacks that it is measured under."""

    name: str
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Rules` that differ from their defaults."""
    attacks: tuple[str, ...] = TELLING_ATTACKS
    with_all_honest: bool = False
    """Whether there is also a run of all peers without attack, for what the rules cost."""
    times_rounds: int = 1
    """How many times the task's rounds a run has: a codec that sends less needs more of them."""


ARMS = (
    Arm(DEFAULT, {}, EVERY_ATTACK, with_all_honest=True),
    Arm(
        MEAN,
        {
            "aggregation_method": "mean",
            "norm_scaling": "none",
            "use_nnm": False,
            "cosine_threshold": 0.0,
            "magnitude_ratio_threshold": 1e9,
        },
        EVERY_ATTACK,
        with_all_honest=True,
    ),
    Arm(
        SPARSE,
        {"codec": "topk", "aggregation_method": default_method("topk")},
        EVERY_ATTACK,
        with_all_honest=True,
        times_rounds=2,
    ),
    Arm("norms scaled both ways", {"norm_scaling": "both"}, with_all_honest=True),
    Arm("no neighbour mixing", {"use_nnm": False}, with_all_honest=True),
    Arm("buckets of two", {"bucket_size": 2}),
    Arm("momentum 0.5", {"contribution_momentum": 0.5}),
    Arm("median", {"aggregation_method": "median"}),
    Arm("krum", {"aggregation_method": "krum"}),
    Arm("multi-Krum", {"aggregation_method": "multi_krum"}),
    Arm("geometric median", {"aggregation_method": "geometric_median"}),
    Arm("centred clipping", {"aggregation_method": "centered_clipping"}),
)
QUICK_ARMS = (DEFAULT, MEAN, SPARSE, SCREENING, WHOLE_NODES)

REJECTION_ROUNDS = {100: 4, 500: 2}
"""By inner steps. The runs of the table count the same at their own number of inner steps."""


LONG_ROUND = 500
"""Inner steps of rounds that a quick run leaves out."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    arm: str
    attack: str
    seed: int
    num_honest: int
    num_hostile: int
    task: Task
    rules: Rules

    @property
    def is_gossip(self) -> bool:
        """Whether it is a run of whole nodes."""
        return self.arm == WHOLE_NODES

    def __str__(self) -> str:
        peers = f"{self.num_honest}+{self.num_hostile} peers"
        attack = "no attack" if self.attack == NO_ATTACK else self.attack
        return f"{self.arm}, {attack}, {peers}, H {self.task.inner_steps}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user asked for; empty sequences stand for everything."""

    seeds: Sequence[int] = REPORTED_SEEDS
    arms: Sequence[str] = ()
    attacks: Sequence[str] = ()
    is_quick: bool = False


def plan(selection: Selection, task: Task, arms: Iterable[Arm] = ARMS) -> list[Job]:
    """Every run that a selection needs, the longest first.

    Raises:
        ConfigError: An arm or attack of that name does not exist.
    """
    arms = list(arms)
    every = [*EVERY_ATTACK, *GOSSIP_ATTACKS]
    known = [*(arm.name for arm in arms), SCREENING, WHOLE_NODES]
    _check_names("rules", selection.arms, known)
    _check_names("attacks", selection.attacks, every)
    wanted = selection.arms or (QUICK_ARMS if selection.is_quick else known)
    attacks = frozenset(selection.attacks or every)
    jobs: list[Job] = []
    for seed in selection.seeds:
        for arm in arms:
            if arm.name in wanted:
                jobs += _of_arm(arm, _shorten(arm, attacks, selection), seed, task)
        if SCREENING in wanted:
            jobs += _of_screening(seed, task, is_quick=selection.is_quick)
        if WHOLE_NODES in wanted:
            jobs += _of_whole_nodes(attacks, seed, task)
    return sorted(jobs, key=lambda job: -_steps(job))


def describe_selection(selection: Selection, arms: Iterable[Arm] = ARMS) -> str:
    """What is left out of the full benchmark, in one sentence; empty if nothing is."""
    left_out = []
    if selection.is_quick and not selection.arms:
        others = [arm.name for arm in arms if arm.name not in QUICK_ARMS]
        left_out.append(f"the rules {', '.join(others)}" if others else "")
    if selection.is_quick:
        left_out.append(
            f"on the sparse codec all attacks but {', '.join(TELLING_ATTACKS)}; "
            f"screening at H {LONG_ROUND}"
        )
    if selection.arms:
        left_out.append(f"all rules but {', '.join(selection.arms)}")
    if selection.attacks:
        left_out.append(f"all attacks but {', '.join(selection.attacks)}")
    if len(selection.seeds) < len(REPORTED_SEEDS):
        left_out.append(f"all seeds but {', '.join(map(str, selection.seeds))}")
    return "Left out: " + "; ".join(filter(None, left_out)) if any(left_out) else ""


def _of_arm(arm: Arm, attacks: frozenset[str], seed: int, task: Task) -> list[Job]:
    rules = Rules(**arm.rules)
    task = task.with_rounds(task.inner_steps, arm.times_rounds * task.rounds)
    num_honest = NUM_PEERS - NUM_HOSTILE
    jobs = [Job(arm.name, NO_ATTACK, seed, num_honest, 0, task, rules)]
    jobs += [
        Job(arm.name, attack, seed, num_honest, NUM_HOSTILE, task, rules)
        for attack in arm.attacks
        if attack in attacks
    ]
    if arm.with_all_honest:
        jobs.append(Job(arm.name, NO_ATTACK, seed, NUM_PEERS, 0, task, rules))
    return jobs


def _shorten(arm: Arm, attacks: frozenset[str], selection: Selection) -> frozenset[str]:
    """The attacks of an arm; in a quick run fewer on the sparse codec, whose runs are long."""
    return attacks & set(TELLING_ATTACKS) if selection.is_quick and arm.name == SPARSE else attacks


def _of_screening(seed: int, task: Task, *, is_quick: bool) -> list[Job]:
    lengths = [item for item in REJECTION_ROUNDS.items() if not is_quick or item[0] < LONG_ROUND]
    longer = [task.with_rounds(steps, rounds) for steps, rounds in lengths]
    return [Job(SCREENING, NO_ATTACK, seed, NUM_PEERS, 0, each, Rules()) for each in longer]


def _of_whole_nodes(attacks: frozenset[str], seed: int, task: Task) -> list[Job]:
    found = [attack for attack in GOSSIP_ATTACKS if attack in attacks]
    sizes = [(NO_ATTACK, 0)] + [(attack, NUM_HOSTILE) for attack in found]
    return [
        Job(WHOLE_NODES, attack, seed, NUM_PEERS - NUM_HOSTILE, num_hostile, task, Rules())
        for attack, num_hostile in (sizes if found else [])
    ]


def _steps(job: Job) -> int:
    if job.is_gossip:
        return 1_000_000  # they wait, so others can run beside them
    trained = job.num_honest + (job.num_hostile if job.attack == LABEL_FLIP else 0)
    return trained * job.task.inner_steps * job.task.rounds


def _check_names(what: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise ConfigError(f"unknown {what}: {name!r} (one of {', '.join(known)})")
