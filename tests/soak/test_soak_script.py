"""The soak run's script: the same for one seed, within its time, and sparing whom it should."""

from __future__ import annotations

import itertools

import pytest
from soak_script import NUM_SPARED, Kind, Plan, write_phases, write_script

HOUR = Plan(7, 60)
ENDING_LIFE = frozenset(Kind) - {Kind.STOP, Kind.PARTITION, Kind.POWER_CUT}


def test_the_same_seed_writes_the_same_script():
    assert write_script(HOUR) == write_script(Plan(7, 60))
    assert write_phases(HOUR) == write_phases(Plan(7, 60))
    assert write_script(HOUR) != write_script(Plan(8, 60))


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_brings_every_kind_of_trouble_one_after_the_other(seed: int):
    script = write_script(Plan(seed, 60))
    assert {trouble.kind for trouble in script} == set(Kind)
    assert all(one.ends_at_s < two.at_s for one, two in itertools.pairwise(script))
    assert script[-1].ends_at_s < 3600
    sizes = {len(t.victims) for t in script if t.kind is Kind.PARTITION}
    assert sizes == {1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
def test_two_nodes_live_from_one_power_cut_to_the_next(seed: int):
    script = write_script(Plan(seed, 60))
    ended = {n for t in script if t.kind in ENDING_LIFE for n in t.victims}
    assert ended == set(range(NUM_SPARED, 6))
    cuts = [trouble for trouble in script if trouble.kind is Kind.POWER_CUT]
    assert len(cuts) == 2
    assert cuts[1].at_s - cuts[0].ends_at_s > 45 * 60
    assert all(set(trouble.victims) == set(range(6)) for trouble in cuts)


def test_timeouts_are_forced_about_a_third_of_the_time():
    phases = write_phases(HOUR)
    share = sum(phase.ends_at_s - phase.at_s for phase in phases) / 3600
    assert 0.25 < share < 0.5


def test_a_script_of_given_kinds_has_exactly_those():
    kinds = (Kind.PARTITION, Kind.KILL, Kind.STOP)
    script = write_script(Plan(1, 1.5, 4, kinds))
    assert tuple(trouble.kind for trouble in script) == kinds
    assert all(len(trouble.victims) == 1 for trouble in script)
