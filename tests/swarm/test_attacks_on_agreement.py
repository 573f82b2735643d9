"""The benchmark's attacks on the agreement, with fewer nodes and rounds."""

from __future__ import annotations

import pytest

from neuroswarm.bench.gossip_run import EQUIVOCATION, SELECTIVE, run_gossip


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("attack", [EQUIVOCATION, SELECTIVE])
def test_honest_nodes_stay_equal_whatever_each_was_told(attack: str):
    record = run_gossip(attack, seed=1, num_honest=4, num_hostile=1, rounds=4)
    assert record.faults_fired > 0
    assert record.rounds_equal == record.rounds >= 4
    assert record.is_banned == (attack == EQUIVOCATION)
