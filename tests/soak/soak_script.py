"""Which troubles befall whom and when: a pure function of the plan.

Troubles come one after the other, with some calm after each; phases of forced timeouts run beside
them. Refuses to know how anything is done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

LOSS = 0.1
TIMEOUTS = 0.3
NUM_SPARED = 2
"""The first nodes live from one power cut to the next, so that their memory tells."""
POWER_CUTS_AT = (0.06, 0.94)
"""Shares of a long run, so that the lives between are long."""
LONG_MINUTES = 10.0
FIRST_AT_S = 10.0
LAST_CALM_S = 30.0


class Kind(StrEnum):
    """What happens to the victims."""

    KILL = "kill -9, back with its folder"
    KILL_EMPTY = "kill -9, back empty"
    STOP = "stopped and continued"
    PARTITION = "partition"
    LEAVE = "SIGTERM, back with its folder"
    JOIN_TWO = "two join at once"
    DONOR_DEATH = "donor dies while one joins"
    POWER_CUT = "power cut of all"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One trouble, from beginning to end."""

    kind: Kind
    at_s: float
    """Seconds after the swarm trains."""
    lasts_s: float
    """Seconds; a donor's death lasts so long after it was struck."""
    victims: tuple[int, ...]
    """Numbers of nodes; of a partition the smaller group. Of a donor's death the joiner."""

    @property
    def ends_at_s(self) -> float:
        """When what was done is undone."""
        return self.at_s + self.lasts_s


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds in which timeouts are forced."""

    at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to be."""

    seed: int
    minutes: float
    num_nodes: int = 6
    kinds: tuple[Kind, ...] = ()
    """Exactly these troubles, in this order; none: shuffled ones until the time is over."""
    calm_s: tuple[float, float] = (12.0, 25.0)
    """Range of the seconds between a trouble's end and the next one."""

    @property
    def is_long(self) -> bool:
        """Whether memory is judged, and the loss by tenths."""
        return self.minutes >= LONG_MINUTES


_LASTS_S = {
    Kind.KILL: (1.0, 12.0),
    Kind.KILL_EMPTY: (1.0, 12.0),
    Kind.STOP: (4.0, 25.0),
    Kind.PARTITION: (15.0, 40.0),
    Kind.LEAVE: (9.0, 20.0),
    Kind.JOIN_TWO: (2.0, 8.0),
    Kind.DONOR_DEATH: (10.0, 20.0),
    Kind.POWER_CUT: (3.0, 6.0),
}
_CALM_FACTOR = {Kind.PARTITION: 1.5, Kind.POWER_CUT: 2.0, Kind.JOIN_TWO: 1.3, Kind.DONOR_DEATH: 2.0}


def write_script(plan: Plan) -> list[Trouble]:
    """All troubles of a run, by time."""
    rng = random.Random(f"troubles {plan.seed}")
    deck = _Deck(plan, rng)
    cuts = [60 * plan.minutes * share for share in POWER_CUTS_AT] if plan.is_long else []
    troubles: list[Trouble] = []
    at_s = FIRST_AT_S
    for number in range(10_000):
        if plan.kinds and number == len(plan.kinds):
            break
        is_cut = bool(cuts) and at_s >= cuts[0]
        if is_cut:
            cuts.pop(0)
        kind, size = (Kind.POWER_CUT, plan.num_nodes) if is_cut else deck.draw()
        lasts_s = round(rng.uniform(*_LASTS_S[kind]), 1)
        if at_s + lasts_s > 60 * plan.minutes - LAST_CALM_S and not plan.kinds:
            break
        victims = _choose(kind, size, plan.num_nodes, rng)
        troubles.append(Trouble(kind, round(at_s, 1), lasts_s, victims))
        at_s += lasts_s + rng.uniform(*plan.calm_s) * _CALM_FACTOR.get(kind, 1.0)
    return troubles


def write_phases(plan: Plan) -> list[Phase]:
    """When timeouts are forced: about a third of the time."""
    rng = random.Random(f"phases {plan.seed}")
    phases, at_s = [], FIRST_AT_S
    while (at_s := at_s + rng.uniform(20.0, 60.0)) < 60 * plan.minutes - LAST_CALM_S:
        ends_at_s = at_s + rng.uniform(15.0, 30.0)
        phases.append(Phase(round(at_s, 1), round(ends_at_s, 1)))
        at_s = ends_at_s
    return phases


class _Deck:
    """Kinds with the sizes of their groups, shuffled again whenever all were drawn."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self._rng = rng
        self._fixed = list(plan.kinds)
        self._sizes = range(1, plan.num_nodes // 2 + 1)
        self._cards: list[tuple[Kind, int]] = []

    def draw(self) -> tuple[Kind, int]:
        if self._fixed:
            return self._fixed.pop(0), 1
        if not self._cards:
            partitions = [(Kind.PARTITION, size) for size in self._sizes]
            others = [Kind.KILL, Kind.KILL, Kind.KILL_EMPTY, Kind.STOP, Kind.STOP, Kind.LEAVE]
            others += [Kind.JOIN_TWO, Kind.DONOR_DEATH]
            self._cards = [*partitions, *((kind, 1) for kind in others)]
            self._rng.shuffle(self._cards)
        return self._cards.pop()


def _choose(kind: Kind, size: int, num_nodes: int, rng: random.Random) -> tuple[int, ...]:
    everyone = range(num_nodes)
    if kind is Kind.POWER_CUT:
        return tuple(rng.sample(everyone, num_nodes))
    if kind in (Kind.PARTITION, Kind.STOP):
        return _sorted_sample(everyone, size, rng)
    mortal = everyone[NUM_SPARED:]
    return _sorted_sample(mortal, 2 if kind is Kind.JOIN_TWO else 1, rng)


def _sorted_sample(numbers: Sequence[int], count: int, rng: random.Random) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(numbers, count)))
