"""Slow peers skip rounds, keep what they computed, and hold nobody up."""

from __future__ import annotations

from pathlib import Path

import pytest
from member_books import Books

from neuroswarm.testing.swarm import Swarm

STEP_S = 0.005
INNER_STEPS = 32
PACE = {"diloco": {"inner_steps": INNER_STEPS, "inner_steps_max": 2 * INNER_STEPS}}


@pytest.mark.parametrize(("times_slower", "wanted"), [(4, 3), (16, 2), (60, 1)])
async def test_a_slow_peer_skips_rounds_and_loses_nothing(
    tmp_path: Path, times_slower: int, wanted: int
):
    async with Swarm(tmp_path, step_s=STEP_S, **PACE) as swarm:
        *fast, slow = await swarm.start("anna", "bert", "carl", "slow", trains=False)
        slow.step_s = STEP_S * times_slower
        books = Books(slow)
        await swarm.train_together([*fast, slow])
        await swarm.until(
            lambda: slow.statistics.contributions_agreed >= wanted, what="slow's part"
        )
        slow.parts.compute.pause_training()
        fast[0].parts.compute.pause_training()
        await swarm.until_level()
        events = [e for e in await fast[0].events() if e["event"] == "commit"]
        agreed = {c for e in events for c in e["contributions"]}
        assert await books.missing(agreed) < 1e-4
        of_slow = [e for e in events if slow.node_id.hex() in e["signers"]]
        assert len(of_slow) >= wanted
        if times_slower >= 16:
            # The others went on without it.
            assert len(events) > slow.parts.trainer.total.steps / INNER_STEPS
            assert len(of_slow) < len(events)
        assert all(len(found) == 1 for found in (await swarm.digests()).values())
