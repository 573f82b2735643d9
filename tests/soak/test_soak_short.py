"""The short form of the soak run: four nodes bear a kill -9, a partition and a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak_run import run_soak
from soak_script import Kind, Plan

SEED = 20240602
KINDS = (Kind.KILL, Kind.PARTITION, Kind.STOP)
PLAN = Plan(SEED, 1.0, num_nodes=4, kinds=KINDS, calm_s=(4.0, 6.0))
DEADLINE_S = 600
"""It takes about 90 s, a third of it the start of four nodes; much longer on a busy machine."""


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S)
def test_a_small_swarm_bears_a_kill_a_partition_and_a_stop(tmp_path: Path):
    figures, failure = run_soak(PLAN, tmp_path)
    assert failure is None, failure
    assert [trouble["kind"] for trouble in figures["troubles"]] == [kind.value for kind in KINDS]
    assert all(trouble["one_lineage_after_s"] is not None for trouble in figures["troubles"])
    assert figures["returns"]["contributed_after_s"]["count"] == 1, "the killed node is back"
    faults = figures["faults"]
    struck = ("calls lost", "calls blocked", "datagrams lost", "datagrams blocked")
    assert all(faults[what] > 0 for what in struck)
    assert figures["rounds_committed"] > 3
