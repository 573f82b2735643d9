"""Nothing on the network blocks an inner step, and no work is lost while peers are silent."""

from __future__ import annotations

from pathlib import Path

from neuroswarm.testing.faults import DATAGRAM
from neuroswarm.testing.swarm import INNER_STEPS, Swarm


async def test_peers_that_live_and_say_nothing_never_stall_the_inner_steps(tmp_path: Path):
    """Heartbeats pass, so everyone is expected; calls do not, so nobody is heard."""
    async with Swarm(tmp_path, step_s=0.05) as swarm:
        anna, *others = await swarm.found("anna", "bert", "carl", "dora")
        await swarm.until_round(1)
        silence = [
            swarm.network.drop(a.node_id, b.node_id, when=lambda p: p.method != DATAGRAM)
            for other in others
            for a, b in ((anna, other), (other, anna))
        ]
        await swarm.more_rounds(3, others)
        before = anna.parts.compute.num_steps
        await swarm.until(
            lambda: anna.parts.compute.num_steps >= before + 10 * INNER_STEPS,
            what="anna's compute thread",
        )
        assert all(m.node_id in others[0].parts.rounds.driver.electorate.live for m in others)
        alone_at = anna.round
        for fault in silence:
            swarm.network.remove(fault)
        await swarm.until_round(max(member.round for member in others) + 2)
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        assert anna.round > alone_at
        assert sum(fault.fired for fault in silence) > 0
