"""Swarm time: whose clock counts, and what liars can do to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.membership.swarm_time import median_offset, swarm_time

offsets = st.floats(-1e9, 1e9)


def test_without_peers_the_own_clock_is_all_there_is():
    assert median_offset([]) is None
    assert swarm_time(7.0, None) == 7.0


def test_a_machine_in_1970_learns_the_time():
    assert swarm_time(5.0, median_offset([1.7e9, 1.7e9 + 1, 1.7e9 - 1])) == 1.7e9 + 5.0


def test_of_two_the_nearer_clock_counts():
    assert median_offset([300.0, 1.0]) == 1.0
    assert median_offset([-300.0, 400.0]) == -300.0


@given(st.lists(offsets, min_size=3, max_size=30), st.data())
def test_a_quarter_that_lies_moves_it_no_further_than_an_honest_clock(
    honest: list[float], data: st.DataObject
):
    num_liars = len(honest) // 3
    lies = data.draw(st.lists(offsets, min_size=num_liars, max_size=num_liars))
    assert 4 * num_liars <= len(honest) + num_liars
    found = median_offset(data.draw(st.permutations(honest + lies)))
    assert found is not None
    assert min(honest) <= found <= max(honest)
