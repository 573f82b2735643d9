"""Many machines, no network: whatever is lost, late or reordered, agreement keeps its word.

What DESIGN 4.5 promises, and no more: nodes that know everybody's confirms when they decide do so
alike; and whatever is lost, two nodes decide apart only where one of them met the deadline: of
two sets at most one has the confirms of two thirds of the voters.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.config import RoundConfig
from neuroswarm.rounds.agreement import Ids, Round
from neuroswarm.rounds.electorate import Electorate
from neuroswarm.rounds.phases import Action, Instant, Phase
from neuroswarm.values import NodeId

CFG = RoundConfig()
STEPS = 50
END_S = 300.0
"""Longer than all deadlines of a round together."""

Hear = Callable[[Round], None]


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(20, "big"))


@dataclass
class Council:
    """Round machines of all voters, and the messages between them in the order of arrival."""

    size: int
    chance: random.Random
    loss: float
    max_delay_s: float
    confirms_are_lost: bool
    num_spies: int = 0
    """Hostile voters: they hurry the others, and publish when they have seen a payload."""
    num_victims: int = 0
    """Who alone are told skips by the spies, so that they seal early; nobody hears of seals."""
    begin_s: float = 0.0
    """When the first is ready: the grace is a tenth of it."""
    slow_s: float = 0.0
    """Time that the first node's link takes for its payload; it knows."""
    now: float = 0.0
    num_answers: int = 0
    """Contributions of spies that answer a payload which they had seen."""
    machines: list[Round] = field(init=False)
    decided: dict[int, Ids] = field(default_factory=dict)
    confirmed: dict[int, Ids] = field(default_factory=dict)
    knew: dict[int, frozenset[NodeId]] = field(default_factory=dict)
    """Whose confirms each node had heard when it decided."""
    num_lost: int = 0
    gives_until: float = math.inf
    """When the last peer has the first node's payload."""

    def __post_init__(self) -> None:
        self.machines = [Round(node(n), started_at=0.0, cfg=CFG) for n in range(self.size)]
        self.ready_at = [self.begin_s + self.chance.uniform(0, 5) for _ in range(self.size)]
        self._events: list[tuple[float, int, int, Hear | None]] = []
        self._order = itertools.count()
        for number in range(self.size):
            self._at(self.ready_at[number], number, None)
        for spy in map(node, self._spies):

            def hurry(other: Round, spy: NodeId = spy) -> None:
                other.heard_ready(spy)
                if not self.num_victims:
                    other.heard_seal(spy)

            self._spread(-1, hurry)
            for victim in range(self.num_victims):
                self._at(0.0, victim, lambda other, spy=spy: other.heard_skip(spy))  # type: ignore[misc]

    @property
    def _spies(self) -> range:
        return range(self.size, self.size + self.num_spies)

    def run(self) -> None:
        while self._events:
            self.now, _, number, hear = heapq.heappop(self._events)
            if self.now > END_S:
                return
            if hear is not None:
                hear(self.machines[number])
            self._poll(number)

    def _at(self, when: float, number: int, hear: Hear | None) -> None:
        heapq.heappush(self._events, (when, next(self._order), number, hear))

    def _poll(self, number: int) -> None:
        machine = self.machines[number]
        while (action := machine.poll(self._instant(number))) is not None:
            self._act(number, machine, action)
        if machine.deadline is not None:
            self._at(max(machine.deadline, self.now), number, None)

    def _instant(self, number: int) -> Instant:
        return Instant(
            now=self.now,
            electorate=Electorate(frozenset(map(node, range(self.size + self.num_spies)))),
            is_voter=True,
            inner_steps=STEPS if self.now >= self.ready_at[number] else STEPS // 2,
            steps_wanted=STEPS,
            slowest_rtt_s=None,
            payload_s=0.0,
            giving_s=self.slow_s if number == 0 and self.now < self.gives_until else 0.0,
        )

    def _act(self, number: int, machine: Round, action: Action) -> None:
        me = node(number)
        match action:
            case Action.SAY_READY:
                self._spread(number, lambda other: other.heard_ready(me))
            case Action.PUBLISH:
                mine = number.to_bytes(32, "big")
                machine.published(mine, self.now)
                self._spread(number, lambda other: other.heard_contribution(me, mine))
            case Action.SEND_SEAL:
                self._spread(number, lambda other: other.heard_seal(me))
            case Action.REVEAL:
                mine = number.to_bytes(32, "big")
                if mine in machine.publishers.values():
                    late_s = self.slow_s if number == 0 else 0.0
                    self._spread(number, lambda other: other.held(me, mine), late_s=late_s)
                    self._answer()
                if number == 0:
                    self.gives_until = self.now + self.slow_s + self.max_delay_s
                    self._at(self.gives_until, 0, None)
            case Action.SEND_BALLOT:
                ballot = machine.ballot
                self._spread(number, lambda other: other.heard_ballot(me, ballot))
            case Action.SEND_CONFIRM:
                ids = self.confirmed[number] = machine.candidate
                self._spread(
                    number,
                    lambda other: other.heard_confirm(me, ids),
                    is_safe=not self.confirms_are_lost,
                )
            case Action.DECIDE:
                self.decided[number] = machine.decided
                voices = (machine.confirmers(ids) for ids in set(self.confirmed.values()))
                self.knew[number] = frozenset().union(*voices)

    def _answer(self) -> None:
        """The first payload is out: every spy publishes what it made of it, and votes for it."""
        if self.num_answers:
            return
        everything = tuple(n.to_bytes(32, "big") for n in range(self.size + self.num_spies))
        for spy in self._spies:
            self.num_answers += 1
            answer, who = spy.to_bytes(32, "big"), node(spy)

            def hear(other: Round, who: NodeId = who, answer: bytes = answer) -> None:
                other.held(who, answer)
                other.heard_ballot(who, everything)

            self._spread(-1, hear)

    def _spread(
        self, sender: int, hear: Hear, *, is_safe: bool = False, late_s: float = 0.0
    ) -> None:
        for number in range(self.size):
            if number == sender:
                continue
            if not is_safe and self.chance.random() < self.loss:
                self.num_lost += 1
                continue
            # Confirms that are heard at all are heard within the deadline for them.
            delay_s = 0.0 if is_safe else self.chance.uniform(0, self.max_delay_s)
            self._at(self.now + late_s + delay_s, number, hear)


def hold(
    seed: int, size: int, loss: float, *, confirms_are_lost: bool, slow_s: float = 0.0
) -> Council:
    council = Council(size, random.Random(seed), loss, 0.2, confirms_are_lost, slow_s=slow_s)
    council.run()
    return council


SEEDS = st.integers(0, 2**32)
SIZES = st.integers(2, 9)
LOSSES = st.sampled_from([0.0, 0.1, 0.3, 0.6])
SLOW = st.sampled_from([0.0, 0.5, 2.0, 20.0])


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES, LOSSES, SLOW)
def test_a_set_with_two_thirds_of_the_confirms_is_the_only_one(
    seed: int, size: int, loss: float, slow_s: float
):
    council = hold(seed, size, loss, confirms_are_lost=True, slow_s=slow_s)
    voices = list(council.confirmed.values())
    strong = {ids for ids in voices if 3 * voices.count(ids) >= 2 * size}
    assert len(strong) <= 1
    for number, ids in council.decided.items():
        assert ids in voices, "a set that nobody confirmed"
        if 3 * len(council.machines[number].confirmers(ids)) >= 2 * size:
            assert strong == {ids}


@settings(max_examples=100, deadline=None)
@given(SEEDS, SIZES, LOSSES, SLOW)
def test_those_who_knew_all_confirms_when_they_decided_decided_alike(
    seed: int, size: int, loss: float, slow_s: float
):
    council = hold(seed, size, loss, confirms_are_lost=False, slow_s=slow_s)
    everyone = frozenset(map(node, range(size)))
    informed = {
        council.decided[number] for number, known in council.knew.items() if known == everyone
    }
    assert len(informed) <= 1


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES)
def test_without_loss_all_decide_the_same_and_nobody_is_left_out(seed: int, size: int):
    council = hold(seed, size, 0.0, confirms_are_lost=False)
    assert council.num_lost == 0
    assert {machine.phase for machine in council.machines} == {Phase.DECIDED}
    assert set(council.decided.values()) == {
        tuple(number.to_bytes(32, "big") for number in range(size))
    }


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES)
def test_a_contribution_over_a_slow_link_is_in_the_set_if_the_grace_allows_it(seed: int, size: int):
    council = Council(
        size, random.Random(seed), 0.0, 0.05, False, begin_s=100.0, slow_s=5.0
    )  # the grace is a tenth of the round
    council.run()
    assert set(council.decided.values()) == {
        tuple(number.to_bytes(32, "big") for number in range(size))
    }


@settings(max_examples=60, deadline=None)
@given(SEEDS, SIZES, LOSSES, SLOW)
def test_every_published_round_ends_whatever_is_lost(
    seed: int, size: int, loss: float, slow_s: float
):
    council = hold(seed, size, loss, confirms_are_lost=True, slow_s=slow_s)
    for machine in council.machines:
        # A node that heard of too few ready peers trains on; all others come to a decision.
        assert machine.phase in (Phase.DECIDED, Phase.TRAINING)


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.integers(3, 10), st.floats(0.001, 0.2))
def test_nobody_who_has_seen_a_payload_gets_a_contribution_into_the_round(
    seed: int, size: int, max_delay_s: float
):
    num_spies = (size - 1) // 3  # fewer than a quarter of all voters are hostile
    council = Council(size, random.Random(seed), 0.0, max_delay_s, False, num_spies)
    council.run()
    assert council.num_answers == num_spies
    answers = {n.to_bytes(32, "big") for n in range(size, size + num_spies)}
    for ids in council.decided.values():
        assert answers.isdisjoint(ids)
        assert ids
    assert len(council.decided) == size


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(4, 10))
def test_nor_by_telling_a_few_that_it_skips(seed: int, size: int):
    num_spies = (size - 1) // 3
    council = Council(
        size, random.Random(seed), 0.0, 0.1, False, num_spies,
        num_victims=(size + num_spies) // 4, begin_s=200.0,
    )  # fmt: skip
    council.run()
    answers = {n.to_bytes(32, "big") for n in range(size, size + num_spies)}
    assert council.decided
    for ids in council.decided.values():
        assert answers.isdisjoint(ids)


def test_losses_do_happen_in_these_tests():
    councils = [hold(seed, 6, 0.3, confirms_are_lost=True) for seed in range(20)]
    assert all(council.num_lost > 0 for council in councils)
    assert any(len(set(council.confirmed.values())) > 1 for council in councils)
