"""The benchmark's attacks on the agreement, with fewer nodes and rounds.

A run ends once all honest nodes hold the same digest, or fails.
"""

from __future__ import annotations

import pytest

from neuroswarm.bench.gossip_run import EQUIVOCATION, SELECTIVE, run_gossip


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("attack", [EQUIVOCATION, SELECTIVE])
def test_honest_nodes_end_equal_whatever_each_was_told(attack: str):
    record = run_gossip(attack, seed=1, num_honest=4, num_hostile=1, rounds=4)
    assert record.faults_fired > 0
    assert record.rounds >= 3
    assert record.is_banned == (attack == EQUIVOCATION)
