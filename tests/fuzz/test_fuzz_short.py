"""The short form of the fuzz run: a live node bears what strangers and members send it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_dht_liars import KINDS
from fuzz_run import QUICK, Fuzz, Plan

SEED = 20240607
DEADLINE_S = 240
"""It takes about 30 s, half of it the start of two nodes; much longer on a busy machine."""


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
def test_a_live_node_bears_what_is_sent_to_all_its_doors(tmp_path: Path):
    told = dict(Fuzz(Plan(SEED, **QUICK), tmp_path).run().lines)
    admitted, banned = (int(told[f"run: requests_{n}"]) for n in ("admitted", "of_banned"))
    assert admitted >= QUICK["calls"], "calls got past the door"
    assert banned > 0, "and others were refused there"
    sent = QUICK["stranger_datagrams"] + QUICK["member_datagrams"]
    assert int(told["run: datagrams_received"]) >= sent
    assert int(told["run: datagrams_unopened"]) < sent, "some opened"
    received, unopened = map(int, told["run: DHT, without token: received, unopened"].split(","))
    assert received >= QUICK["dht_stranger_datagrams"], "the DHT's port was reached"
    assert 0 < unopened < received
    lies = told["run: DHT, with token: answered, lies told"]
    assert all(kind in lies for kind in KINDS), "the node asked every kind of liar"
    assert "run: relay: at most; in all" in told
    assert "run: calls back: made; to whom members name" in told
