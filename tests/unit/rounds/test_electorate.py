from __future__ import annotations

import pytest

from neuroswarm.rounds.electorate import Electorate
from neuroswarm.values import NodeId


def electorate(size: int, silent: int = 0, num_recent: int = 0) -> Electorate:
    live = [NodeId(n.to_bytes(20, "big")) for n in range(size)]
    return Electorate(frozenset(live), frozenset(live[:silent]), num_recent)


@pytest.mark.parametrize("size", range(1, 33))
def test_quorums_outvote_a_quarter_of_liars(size: int):
    voters = electorate(size)
    liars = size // 4
    assert voters.publish_quorum == liars + 1
    assert not voters.is_plausible(liars)
    assert voters.is_plausible(liars + 1)
    supermajority = next(n for n in range(size + 1) if voters.is_supermajority(n))
    assert supermajority == -(-2 * size // 3)
    # Two sets that both have 2/3 of the voters would share more voters than there are liars.
    assert 2 * supermajority - size > liars or size < 4


def test_no_confirm_is_no_supermajority_even_of_nobody():
    assert not electorate(0).is_supermajority(0)


def test_ballots_of_the_silent_are_not_expected():
    voters = electorate(5, silent=2)
    assert len(voters.expected_ballots) == 3
    assert voters.expected_ballots.isdisjoint(voters.silent)


@pytest.mark.parametrize(("num_recent", "needed"), [(0, 1), (3, 1), (4, 3), (7, 3), (8, 5)])
def test_a_round_needs_more_contributions_than_twice_the_hostile(num_recent: int, needed: int):
    assert electorate(8, num_recent=num_recent).min_contributions == needed
