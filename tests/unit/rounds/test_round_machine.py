"""The life of one round: every phase, quorum, grace, deadline and tie."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from neuroswarm.config import RoundConfig
from neuroswarm.rounds.agreement import Round, choose_set
from neuroswarm.rounds.electorate import Electorate
from neuroswarm.rounds.phases import Action, Instant, Phase
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import set_hash

CFG = RoundConfig(
    min_grace_s=1.0,
    grace_fraction=0.1,
    contagion_s=0.3,
    collect_deadline_s=60.0,
    settle_s=0.5,
    min_settle_s=0.05,
    ballot_deadline_s=2.0,
    confirm_deadline_s=1.5,
)
STEPS = 50


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(20, "big"))


def contribution(number: int) -> bytes:
    return number.to_bytes(32, "big")


ME = node(0)


@dataclass
class Table:
    """One node's machine, its clock, and the other members."""

    size: int
    round: Round = field(init=False)
    at: Instant = field(init=False)

    def __post_init__(self) -> None:
        self.round = Round(ME, started_at=0.0, cfg=CFG)
        live = frozenset(map(node, range(self.size)))
        self.at = Instant(
            now=0.0,
            electorate=Electorate(live),
            is_voter=True,
            inner_steps=0,
            steps_wanted=STEPS,
            slowest_rtt_s=None,
            payload_s=0.0,
        )

    def set(self, **changes: object) -> None:
        self.at = replace(self.at, **changes)  # type: ignore[arg-type]

    def poll(self, **changes: object) -> Action | None:
        self.set(**changes)
        return self.round.poll(self.at)

    def publish(self) -> None:
        """Bring the machine to COLLECTING with its own contribution, at the time it is."""
        assert self.poll(inner_steps=STEPS) is Action.SAY_READY
        for other in range(1, self.size):
            self.round.heard_ready(node(other))
        assert self.poll() is Action.PUBLISH
        self.round.published(contribution(0), self.at.now)

    def hold_all(self) -> None:
        for other in range(1, self.size):
            self.round.held(node(other), contribution(other))

    def hear_headers(self, *others: int) -> None:
        for other in others or range(1, self.size):
            self.round.heard_contribution(node(other), contribution(other))

    def reveal(self, **changes: object) -> None:
        """Bring the machine from COLLECTING to payloads revealed; all others seal too."""
        assert self.poll(**changes) is Action.SEND_SEAL
        for other in range(1, self.size):
            self.round.heard_seal(node(other))
        assert self.poll() is Action.REVEAL

    def close(self) -> None:
        """Bring the machine to CLOSED with everybody's contribution."""
        self.publish()
        self.hold_all()
        self.reveal()
        assert self.poll() is Action.SEND_BALLOT

    def confirm(self, *ballots: tuple[bytes, ...]) -> None:
        """Bring the machine to CONFIRMED with these ballots of the others."""
        self.close()
        for other, ids in enumerate(ballots, start=1):
            self.round.heard_ballot(node(other), ids)
        assert self.poll(now=self.at.now + CFG.ballot_deadline_s) is Action.SEND_CONFIRM

    @property
    def all_ids(self) -> tuple[bytes, ...]:
        return tuple(map(contribution, range(self.size)))


# -- training ------------------------------------------------------------------------


def test_a_node_trains_until_its_steps_are_taken():
    table = Table(1)
    assert table.poll(inner_steps=STEPS - 1, now=1e6) is None
    assert table.round.phase is Phase.TRAINING


def test_ready_is_said_once():
    table = Table(8)
    assert table.poll(inner_steps=STEPS) is Action.SAY_READY
    assert table.poll() is None


@pytest.mark.parametrize("size", [1, 3, 4, 7, 8, 20])
def test_a_quarter_of_the_peers_and_one_start_the_grace(size: int):
    table = Table(size)
    table.poll(inner_steps=STEPS)
    for other in range(1, size // 4):
        table.round.heard_ready(node(other))
    if size >= 4:
        assert table.poll(now=1e6) is None  # one short of the quorum, for ever
        table.round.heard_ready(node(size - 1))
    if size > 1:
        # The grace is a tenth of the round so far, so that it is not over at once.
        assert table.poll(now=2e6) is None
    assert table.poll(now=3e6) is Action.PUBLISH


def test_the_grace_lasts_a_second_at_least():
    table = Table(8)
    table.poll(inner_steps=STEPS, now=2.0)
    for other in (1, 2):
        table.round.heard_ready(node(other))
    assert table.poll() is None
    assert table.round.deadline == 2.0 + CFG.min_grace_s
    assert table.poll(now=2.99) is None
    assert table.poll(now=3.0) is Action.PUBLISH


def test_the_grace_grows_with_the_round_and_with_slow_payloads():
    long_round, slow_link = Table(4), Table(4)
    for table, now in ((long_round, 200.0), (slow_link, 1.0)):
        table.poll(inner_steps=STEPS, now=now)
        table.round.heard_ready(node(1))
    assert long_round.poll() is None
    assert long_round.round.deadline == pytest.approx(200.0 * 1.1)
    assert slow_link.poll(payload_s=4.0) is None
    assert slow_link.round.deadline == pytest.approx(1.0 + 1.5 * 4.0)


def test_nobody_waits_out_the_grace_when_all_are_ready_or_skip():
    table = Table(4)
    table.poll(inner_steps=STEPS)
    table.round.heard_ready(node(1))
    table.round.heard_ready(node(2))
    assert table.poll() is None
    table.round.heard_skip(node(3))
    assert table.poll() is Action.PUBLISH


def test_those_who_published_count_as_ready():
    table = Table(8)
    table.round.heard_contribution(node(1), contribution(1))
    table.round.heard_contribution(node(2), contribution(2))
    assert table.poll(inner_steps=0) is None
    table.round.heard_contribution(node(3), contribution(3))
    assert table.poll(inner_steps=0) is Action.PUBLISH, "a quorum is out: publish or skip with it"


def test_publish_is_asked_for_once():
    table = Table(1)
    table.poll(inner_steps=STEPS)
    assert table.poll() is Action.PUBLISH
    assert table.poll() is None
    table.round.skipped(0.0)
    assert table.round.phase is Phase.COLLECTING


def test_the_dead_and_the_excluded_make_no_quorum():
    table = Table(4)
    table.poll(inner_steps=STEPS)
    table.round.heard_ready(node(99))
    table.round.heard_ready(node(1))
    table.round.exclude(node(1))
    assert table.poll(now=1e6) is None


# -- collecting headers --------------------------------------------------------------


def test_a_round_is_sealed_when_everybody_is_accounted_for():
    table = Table(4)
    table.publish()
    table.round.heard_contribution(node(1), contribution(1))
    table.round.heard_skip(node(2))
    assert table.poll() is None
    table.round.refused(node(3))
    assert table.poll() is Action.SEND_SEAL
    assert table.round.phase is Phase.SEALED


def test_half_of_the_headers_seal_a_round_after_the_grace():
    table = Table(5)
    table.publish()
    table.hear_headers(1)
    assert table.poll(now=10.0) is None, "2 of 5 are not half"
    table.hear_headers(2)
    assert table.poll(now=0.9) is None
    assert table.poll(now=1.0) is Action.SEND_SEAL


def test_too_few_contributions_for_the_hostile_wait_for_the_deadline():
    table = Table(8)
    table.set(electorate=replace(table.at.electorate, num_recent=8))
    table.publish()
    table.hear_headers(1, 2, 3)
    for other in range(4, 7):
        table.round.heard_skip(node(other))
    assert table.at.electorate.min_contributions == 5
    assert table.poll(now=CFG.collect_deadline_s - 0.1) is None, "4 heard of the 5 needed"
    assert table.poll(now=CFG.collect_deadline_s) is Action.SEND_SEAL


def test_a_node_alone_among_silent_peers_goes_on_at_the_deadlines():
    table = Table(8)
    table.publish()
    assert table.poll(now=CFG.collect_deadline_s - 0.1) is None
    assert table.poll(now=CFG.collect_deadline_s) is Action.SEND_SEAL
    assert table.poll() is None
    later = CFG.collect_deadline_s + CFG.contagion_s + CFG.seal_deadline_s
    assert table.poll(now=later - 0.1) is None
    assert table.poll(now=later) is Action.REVEAL
    assert table.poll() is Action.SEND_BALLOT, "there is nothing to wait for"


@pytest.mark.parametrize("said", ["seal", "ballot"])
def test_sealing_is_contagious(said: str):
    table = Table(8)
    table.publish()

    def hear(other: int) -> None:
        if said == "seal":
            table.round.heard_seal(node(other))
        else:
            table.round.heard_ballot(node(other), ())

    hear(1)
    hear(2)
    assert table.poll(now=50.0) is None, "2 of 8 are not more than a quarter"
    hear(3)
    assert table.poll(now=50.0) is None
    assert table.round.deadline == pytest.approx(50.0 + CFG.contagion_s)
    assert table.poll(now=50.0 + CFG.contagion_s) is Action.SEND_SEAL


def test_contagion_is_faster_on_fast_links_but_not_below_its_least():
    for rtt_s, wait_s in ((0.02, 5 * 0.02), (0.0, CFG.min_settle_s)):
        table = Table(4)
        table.publish()
        for other in (1, 2):
            table.round.heard_seal(node(other))
        assert table.poll(now=10.0, slowest_rtt_s=rtt_s) is None
        assert table.round.deadline == pytest.approx(10.0 + wait_s)


# -- commit, then reveal -------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4, 8, 9])
def test_payloads_are_revealed_once_two_thirds_have_sealed(size: int):
    table = Table(size)
    table.publish()
    table.hear_headers()
    assert table.poll() is Action.SEND_SEAL
    needed = -(-2 * size // 3)
    for other in range(1, needed):
        assert table.poll() is None, f"{other} of {size} have sealed"
        assert not table.round.is_revealed
        table.round.heard_seal(node(other))
    assert table.poll() is Action.REVEAL
    assert table.round.is_revealed


def test_nobody_is_hurried_by_a_skip_to_give_its_payload_away_before_the_others_seal():
    table = Table(8)
    table.set(now=300.0)  # a long round: the others take headers for a grace of 30 s
    table.publish()
    table.hear_headers(1, 2, 3, 4, 5, 6)
    table.round.heard_skip(node(7))  # which nobody else was told
    assert table.poll() is Action.SEND_SEAL
    grace_s = CFG.grace_fraction * 300.0
    later = 300.0 + grace_s + CFG.contagion_s + CFG.seal_deadline_s
    assert table.poll(now=later - 0.1) is None
    assert table.poll(now=later) is Action.REVEAL


def test_every_peer_puts_the_same_amendments_to_the_ballot_in_whatever_order_they_came():
    ids = [bytes([n]) * 32 for n in range(8)]
    ballots = []
    for order in (ids, ids[::-1]):
        table = Table(1)
        for amendment in order:
            table.round.heard_amendment(amendment)
        ballots.append(table.round.ballot)
    assert ballots[0] == ballots[1] == tuple(ids[: limits.MAX_AMENDMENTS])


def test_seals_of_strangers_reveal_nothing():
    table = Table(4)
    table.publish()
    table.hear_headers()
    assert table.poll() is Action.SEND_SEAL
    for stranger in range(90, 99):
        table.round.heard_seal(node(stranger))
    assert table.poll() is None


def test_a_header_that_comes_after_the_seal_is_too_late():
    table = Table(4)
    table.publish()
    table.hear_headers(1, 2)
    table.round.heard_skip(node(3))
    table.reveal()
    assert not table.round.heard_contribution(node(3), contribution(3))
    assert not table.round.wants(contribution(3))
    table.round.held(node(3), contribution(3))
    assert table.round.ballot == (contribution(0),)
    assert table.round.heard_contribution(node(1), contribution(1)), "no news, and in time"


def test_a_round_closes_when_all_sealed_payloads_are_held_or_refused():
    table = Table(4)
    table.publish()
    table.hear_headers()
    table.reveal()
    table.round.held(node(1), contribution(1))
    assert table.round.wants(contribution(2))
    table.round.held(node(2), contribution(2))
    assert not table.round.wants(contribution(2))
    assert table.poll() is None
    table.round.refused(node(3))
    assert table.poll() is Action.SEND_BALLOT
    assert table.round.ballot == (contribution(0), contribution(1), contribution(2))
    assert table.round.phase is Phase.CLOSED


def test_half_of_the_payloads_close_a_round_after_the_grace():
    table = Table(5)
    table.publish()
    table.hear_headers()
    table.reveal()
    table.round.held(node(1), contribution(1))
    assert table.poll(now=10.0) is None, "2 of 5 are not half"
    table.round.held(node(2), contribution(2))
    assert table.poll(now=0.9) is None
    assert table.poll(now=1.0) is Action.SEND_BALLOT


def test_closing_is_contagious_and_reveals_before():
    table = Table(8)
    table.publish()
    table.hear_headers()
    assert table.poll() is Action.SEND_SEAL
    for other in (1, 2):
        table.round.heard_ballot(node(other), ())
    assert table.poll(now=1.0) is None, "2 of 8 are not more than a quarter"
    table.round.heard_ballot(node(3), ())
    assert table.poll(now=1.0) is Action.REVEAL
    assert table.poll(now=1.0) is None
    assert table.poll(now=1.0 + CFG.contagion_s) is Action.SEND_BALLOT


# -- ballots and confirms ------------------------------------------------------------


def test_ballots_settle_before_they_are_counted():
    table = Table(2)
    table.close()
    table.round.heard_ballot(node(1), table.all_ids)
    assert table.poll(now=0.49) is None
    assert table.poll(now=0.5) is Action.SEND_CONFIRM
    assert table.round.candidate == table.all_ids


def test_missing_ballots_are_waited_for_until_the_deadline():
    table = Table(3)
    table.close()
    table.round.heard_ballot(node(1), table.all_ids)
    assert table.poll(now=1.99) is None
    assert table.poll(now=2.0) is Action.SEND_CONFIRM


def test_nobody_waits_for_those_who_were_silent_last_round():
    table = Table(3)
    table.set(electorate=replace(table.at.electorate, silent=frozenset({node(2)})))
    table.close()
    table.round.heard_ballot(node(1), table.all_ids)
    assert table.poll(now=0.5) is Action.SEND_CONFIRM


def test_a_node_alone_waits_for_nothing():
    table = Table(1)
    table.close()
    assert table.poll() is Action.SEND_CONFIRM
    assert table.poll() is Action.DECIDE
    assert table.round.decided == (contribution(0),)
    assert table.round.phase is Phase.DECIDED
    assert table.poll(now=1e6) is None


@pytest.mark.parametrize(
    ("ballots", "agreed"),
    [
        ([(1, 2), (1, 2), (1, 2)], (1, 2)),
        ([(1, 2), (1, 2), (1,)], (1, 2)),
        ([(1, 2), (1, 3), (1,)], (1,)),
        ([(1,), (2,), (3,)], ()),
        ([(3, 1), (1, 3)], (1, 3)),
        ([(1,), ()], ()),
        ([], ()),
    ],
)
def test_what_two_thirds_of_the_ballots_list_is_the_candidate(
    ballots: list[tuple[int, ...]], agreed: tuple[int, ...]
):
    found = choose_set([tuple(map(contribution, ids)) for ids in ballots])
    assert found == tuple(map(contribution, agreed))


def test_ballots_of_the_dead_and_second_ballots_do_not_count():
    table = Table(3)
    table.close()
    table.round.heard_ballot(node(1), table.all_ids)
    table.round.heard_ballot(node(1), ())
    table.round.heard_ballot(node(2), table.all_ids)
    for stranger in (97, 98, 99):
        table.round.heard_ballot(node(stranger), ())
    assert table.poll(now=0.5) is Action.SEND_CONFIRM
    assert table.round.candidate == table.all_ids


def test_two_thirds_of_equal_confirms_decide_at_once():
    table = Table(4)
    table.confirm(table.all_ids, table.all_ids, table.all_ids)
    table.round.heard_confirm(node(1), table.all_ids)
    assert table.poll() is None, "2 of 4"
    table.round.heard_confirm(node(2), table.all_ids)
    assert table.poll() is Action.DECIDE
    assert table.round.confirmers(table.all_ids) == {node(0), node(1), node(2)}


def test_at_the_deadline_the_smallest_hash_of_the_plausible_sets_wins():
    table = Table(5)
    table.confirm(table.all_ids, table.all_ids)
    mine, other = table.round.candidate, (contribution(1),)
    table.round.heard_confirm(node(1), mine)
    table.round.heard_confirm(node(2), other)
    table.round.heard_confirm(node(3), other)
    deadline = table.at.now + CFG.confirm_deadline_s
    assert table.poll(now=deadline - 0.01) is None
    assert table.round.deadline == pytest.approx(deadline)
    assert table.poll(now=deadline) is Action.DECIDE
    assert table.round.decided == min(mine, other, key=set_hash)


def test_a_set_with_too_few_confirms_loses_even_with_the_smallest_hash():
    lonely = min(((contribution(n),) for n in range(200)), key=set_hash)
    table = Table(5)
    table.confirm(table.all_ids, table.all_ids)
    table.round.heard_confirm(node(1), table.round.candidate)
    table.round.heard_confirm(node(2), lonely)
    assert set_hash(lonely) < set_hash(table.round.candidate)
    assert table.poll(now=1e3) is Action.DECIDE
    assert table.round.decided == table.round.candidate == table.all_ids


def test_without_a_plausible_set_the_most_confirmed_wins_and_ties_break_by_hash():
    table = Table(8)
    table.confirm()
    mine, others = table.round.candidate, [(contribution(1),), (contribution(2),)]
    for number, ids in enumerate(others, start=1):
        table.round.heard_confirm(node(number), ids)
    assert table.poll(now=1e3) is Action.DECIDE
    assert table.round.decided == min([mine, *others], key=set_hash)


def test_an_empty_set_can_be_decided():
    table = Table(3)
    table.confirm((), ())
    assert table.round.candidate == ()
    table.round.heard_confirm(node(1), ())
    assert table.poll() is Action.DECIDE
    assert table.round.decided == ()


# -- late, excluded, onlooking -------------------------------------------------------


def test_a_late_node_supports_what_the_swarm_has_decided():
    table = Table(4)
    agreed = (contribution(1), contribution(2))
    for other in (1, 2, 3):
        table.round.heard_confirm(node(other), agreed)
    assert table.poll() is Action.SEND_CONFIRM
    assert table.round.candidate == agreed
    assert table.poll() is Action.DECIDE
    assert table.round.decided == agreed


def test_a_node_that_is_publishing_finishes_that_first():
    table = Table(4)
    table.poll(inner_steps=STEPS)
    for other in (1, 2, 3):
        table.round.heard_ready(node(other))
    assert table.poll() is Action.PUBLISH
    for other in (1, 2, 3):
        table.round.heard_confirm(node(other), ())
    assert table.poll() is None
    table.round.published(contribution(0), 0.0)
    assert table.poll() is Action.SEND_CONFIRM


def test_nothing_that_an_equivocator_says_counts():
    table = Table(4)
    table.confirm(table.all_ids, table.all_ids, table.all_ids)
    for other in (1, 2):
        table.round.heard_confirm(node(other), table.all_ids)
    table.round.exclude(node(2))
    assert table.poll() is None, "2 of 4 without the excluded"
    table.round.heard_confirm(node(3), table.all_ids)
    assert table.poll() is Action.DECIDE
    assert node(2) not in table.round.confirmers(table.all_ids)


def test_contributions_of_an_equivocator_leave_the_ballot_and_stay_out():
    table = Table(3)
    table.publish()
    table.round.held(node(1), contribution(1))
    table.round.exclude(node(1))
    table.round.held(node(1), contribution(1))
    table.round.held(node(2), contribution(2))
    assert table.round.ballot == (contribution(0), contribution(2))
    table.reveal()
    assert table.poll() is Action.SEND_BALLOT, "nobody waits for the excluded"


def test_nobody_waits_for_the_ballot_of_an_equivocator():
    table = Table(3)
    table.close()
    table.round.heard_ballot(node(1), table.all_ids)
    table.round.exclude(node(2))
    assert table.poll(now=0.5) is Action.SEND_CONFIRM


def test_an_onlooker_says_nothing_and_follows_two_thirds_of_the_voters():
    table = Table(4)
    voters = frozenset(map(node, (1, 2, 3)))
    table.set(electorate=Electorate(voters), is_voter=False)
    table.hold_all()
    for other in (1, 2, 3):
        table.round.heard_ready(node(other))
        table.round.heard_ballot(node(other), table.all_ids)
    assert table.poll(now=1e6, inner_steps=STEPS) is None
    table.round.heard_confirm(node(1), table.all_ids)
    assert table.poll(now=2e6) is None
    table.round.heard_confirm(node(2), table.all_ids)
    assert table.poll() is Action.DECIDE
    assert table.round.confirmers(table.all_ids) == {node(1), node(2)}


def test_an_onlooker_without_voters_decides_nothing():
    table = Table(1)
    table.set(electorate=Electorate(frozenset()), is_voter=False)
    table.round.heard_confirm(node(1), ())
    assert table.poll(now=1e6) is None


def test_a_decided_round_wants_nothing_more():
    table = Table(1)
    table.close()
    table.poll()
    table.poll()
    assert not table.round.wants(contribution(5))


def test_a_node_that_defers_publishes_nothing_though_others_do_and_follows_their_confirms():
    table = Table(4)
    assert table.poll(inner_steps=STEPS, is_deferring=True) is Action.SAY_READY
    for other in (1, 2, 3):
        table.round.heard_contribution(node(other), contribution(other))
    assert table.poll(now=100.0) is None
    for other in (1, 2, 3):
        table.round.heard_confirm(node(other), (contribution(1),))
    assert table.poll() is Action.SEND_CONFIRM
    assert table.poll() is Action.DECIDE


def test_a_node_that_defers_no_longer_publishes():
    table = Table(1)
    assert table.poll(inner_steps=STEPS, is_deferring=True) is Action.SAY_READY
    assert table.poll() is None
    assert table.poll(is_deferring=False) is Action.PUBLISH


# -- a slow link ---------------------------------------------------------------------


def giving_table() -> Table:
    """Everybody's payload is held; the own one is still on its way out, which takes 4 s."""
    table = Table(4)
    table.publish()
    table.hold_all()
    table.reveal(giving_s=4.0)
    return table


def test_a_node_that_is_giving_its_payload_closes_once_the_others_have_it():
    table = giving_table()
    assert table.poll(now=5.0) is None
    assert table.poll(giving_s=0.0) is Action.SEND_BALLOT


def test_a_node_that_is_giving_its_payload_does_so_for_no_longer_than_expected():
    table = giving_table()
    assert table.poll(now=1.5 * 4.0 - 0.01) is None
    assert table.poll(now=1.5 * 4.0) is Action.SEND_BALLOT


def test_a_node_that_is_giving_its_payload_closes_with_the_others():
    table = giving_table()
    for other in (1, 2):
        table.round.heard_ballot(node(other), table.all_ids)
    assert table.poll(now=1.0) is None
    assert table.poll(now=1.0 + CFG.contagion_s) is Action.SEND_BALLOT
