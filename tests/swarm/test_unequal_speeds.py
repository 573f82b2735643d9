"""Peers tell each other how fast they are, and take steps that last about as long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neuroswarm.bench.speeds_bench import QUICK, run_speeds_bench
from neuroswarm.testing.swarm import Swarm


@pytest.mark.slow
async def test_what_peers_take_follows_from_what_they_tell(tmp_path: Path):
    async with Swarm(tmp_path, training={"batch_size": None, "context": 16}) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        fitting = anna.parts.fitting
        await swarm.until(lambda: any(s > 0 for s in fitting.peers_step_s()), what="bert's speed")
        (told,) = fitting.peers_step_s()
        assert told > 0
        batching = bert.parts.trainer.batching
        bert.parts.fitting.peers_step_s = lambda: [1e-9]  # as if the other were very fast
        eighth = batching.start_draws // 8
        await swarm.until(lambda: batching.num_draws == eighth, what="small steps, not smallest")
        bert.parts.fitting.peers_step_s = lambda: ()
        await swarm.until(lambda: batching.num_draws == batching.start_draws, what="first steps")
        peer = next(p for p in anna.parts.reporter.peers() if p["node_id"] == bert.node_id.hex())
        assert peer["device_class"] in ("rpi", "laptop", "desktop", "server")
        await swarm.more_rounds(1)
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_processes_at_1_to_4_to_16_lose_nothing(tmp_path: Path):
    """Needs two cores that nothing else uses; prints what it measured."""
    lines: list[str] = []
    report = run_speeds_bench(QUICK, {**os.environ, "GRPC_VERBOSITY": "NONE"}, lines.append)
    assert all(promise["holds"] for promise in report["promises"]), "\n".join(lines)
