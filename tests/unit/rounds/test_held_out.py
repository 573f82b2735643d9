"""The swarm's held-out loss: agreed members only, few liars move it little, and nothing grows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.diloco import applied
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import OuterState
from neuroswarm.rounds.held_out import KEPT_STATES, HeldOutFigures, name_of, trimmed_mean
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

ME, *PEERS = (NodeId(bytes([n]) * 20) for n in range(9))
STRANGER = NodeId(b"s" * 20)
losses = st.floats(0, limits.MAX_LOSS_NATS)


def state(round_: int, *members: NodeId, lineage: bytes = b"\0") -> OuterState:
    """A state of that round, after a round that agreed these members."""
    table = applied.add({}, round_ - 1, [(member, bytes(32)) for member in members])
    return OuterState(round_, (), table, Rules(), lineage * 32)


def figures_of(stood_on: OuterState, *told: float) -> HeldOutFigures:
    """What a node holds of a state that so many of its peers evaluated."""
    figures = HeldOutFigures(ME)
    figures.stand_on(stood_on)
    for peer, loss in zip(PEERS, told, strict=False):
        figures.note(peer, name_of(stood_on), loss)
    return figures


@given(st.lists(losses, min_size=1, max_size=40), st.data())
def test_a_quarter_of_liars_stays_within_what_the_others_say(
    honest: list[float], data: st.DataObject
):
    num_liars = len(honest) // 3  # a quarter of all, at most
    lies = data.draw(st.lists(losses, min_size=num_liars, max_size=num_liars))
    found = trimmed_mean([*lies, *honest])
    if len(honest) + num_liars >= 3 or not lies:
        assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


@given(st.lists(losses, min_size=2, max_size=9), losses, losses)
def test_one_liar_among_three_or_more_is_left_out_or_harmless(
    honest: list[float], one_lie: float, another: float
):
    for lie in (one_lie, another):
        assert min(honest) - 1e-9 <= trimmed_mean([*honest, lie]) <= max(honest) + 1e-9


def test_more_liars_than_a_quarter_do_move_it():
    """The bound above can be broken by who is not bound by it."""
    assert trimmed_mean([2.0, 2.1, 2.2, 900.0, 900.0, 900.0]) > 3.0
    assert trimmed_mean([2.0, 900.0]) == 451.0, "of two nobody can tell which is wrong"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([2.0], 2.0),
        ([2.0, 3.0], 2.5),
        ([9.0, 2.0, 3.0], 3.0),
        ([1.0, 2.0, 4.0, 9.0], 3.0),
        ([1.0, 2.0, 4.0, 8.0, 9.0], 4.0),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 4.5),
    ],
)
def test_the_mean_leaves_out_a_quarter_at_each_side(told: list[float], expected: float):
    assert trimmed_mean(told) == expected


def test_the_figures_of_a_states_members_are_joined():
    here = state(5, ME, *PEERS[:4])
    figures = figures_of(here, 2.0, 2.5, 900.0)
    figures.note_own(here, 2.25)
    found = figures.newest()
    assert found is not None
    assert found.as_dict() == {"round": 5, "loss": 2.375, "num_nodes": 4, "num_members": 5}


def test_who_was_never_agreed_has_no_vote():
    here = state(5, *PEERS[:3])
    figures = figures_of(here, 2.0, 2.0, 2.0)
    for n in range(100):
        figures.note(NodeId(bytes([100 + n]) * 20), name_of(here), 900.0)
    figures.note(STRANGER, name_of(here), 900.0)
    figures.note_own(here, 900.0)
    found = figures.newest()
    assert found is not None
    assert (found.loss, found.num_nodes) == (2.0, 3)
    assert figures.own == (name_of(here), 900.0), "it tells what it measured all the same"


def test_figures_of_unknown_states_are_passed_over():
    figures = HeldOutFigures(ME)
    figures.note(PEERS[0], b"unknown!", 2.0)
    figures.note(PEERS[0], b"", 0.0)
    assert figures.newest() is None
    figures.stand_on(state(3, *PEERS))
    figures.note(PEERS[0], name_of(state(4, *PEERS)), 2.0)
    assert figures.newest() is None


def test_who_tells_again_has_one_vote_still():
    here = state(5, *PEERS)
    figures = figures_of(here, 2.0, 2.0, 2.0)
    for _ in range(50):
        figures.note(PEERS[0], name_of(here), 900.0)
    found = figures.newest()
    assert found is not None
    assert (found.loss, found.num_nodes) == (2.0, 3)


def test_the_first_to_speak_of_a_new_state_is_not_shown_alone():
    older, newer = state(5, *PEERS), state(6, *PEERS)
    figures = figures_of(older, 2.0, 2.1, 2.2, 2.3)
    figures.stand_on(newer)
    rounds = []
    for peer, loss in zip(PEERS[:3], (900.0, 1.9, 1.8), strict=True):
        figures.note(peer, name_of(newer), loss)
        found = figures.newest()
        assert found is not None
        rounds.append((found.round, round(found.loss, 6)))
    assert rounds == [(5, 2.15), (5, 2.15), (6, 1.9)]


def test_states_of_another_lineage_are_given_up():
    figures = figures_of(state(9, *PEERS), 5.0, 5.0, 5.0, 5.0)
    repaired = state(8, *PEERS, lineage=b"\1")
    figures.stand_on(repaired)
    assert figures.newest() is None
    figures.note(PEERS[0], name_of(repaired), 2.0)
    found = figures.newest()
    assert found is not None
    assert (found.round, found.loss) == (8, 2.0)


def test_only_the_newest_states_are_kept():
    figures = HeldOutFigures(ME)
    states = [state(round_, *PEERS) for round_ in range(1, KEPT_STATES + 4)]
    for each in states:
        figures.stand_on(each)
        figures.note(PEERS[0], name_of(each), 1.0)
    figures.note(PEERS[0], name_of(states[0]), 2.0)
    assert len(figures._by_name) == KEPT_STATES


def test_standing_on_a_state_again_keeps_its_figures():
    here = state(5, *PEERS)
    figures = figures_of(here, 2.0, 3.0)
    figures.stand_on(here)
    found = figures.newest()
    assert found is not None
    assert found.num_nodes == 2


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, -0.5, 1000.5])
def test_of_a_loss_out_of_bounds_nothing_is_told(loss: float):
    here = state(5, ME, *PEERS)
    figures = figures_of(here)
    figures.note_own(here, 2.0)
    figures.note_own(here, loss)
    assert figures.own is None


def test_own_figures_are_rounded_as_others_read_them():
    here = state(5, ME)
    figures = figures_of(here)
    figures.note_own(here, 0.1)
    found = figures.newest()
    assert found is not None
    assert found.loss != 0.1
    assert found.loss == pytest.approx(0.1, rel=1e-7)
