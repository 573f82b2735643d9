"""A keeper that gives one record at a time, just in time, holds no lookup up for long."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from dht_nodes import SWARM, DhtNode, draft_of, make_node

from neuroswarm.dht.lookup import MAX_DRAIN_S, NUM_WALKERS
from neuroswarm.testing.virtual_time import LoopClock, VirtualTimeLoop
from neuroswarm.testing.waiting import until
from neuroswarm.wire.dht_messages import Answer
from neuroswarm.wire.dht_records import swarm_key

TIMEOUT_S = 2.0
NUM_PUBLISHERS = 40
KEY = swarm_key(SWARM)


def dribbles(truth: Answer, _random: random.Random) -> Answer:
    """One record at a time, and always more of them."""
    return replace(truth, records=truth.records[:1], num_left=100 if truth.records else 0)


@pytest.mark.slow
def test_a_keeper_that_dribbles_is_left_after_a_while():
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(dribble_and_look())


async def dribble_and_look() -> None:
    clock = LoopClock()
    first = make_node(0, clock=clock, timeout_s=TIMEOUT_S)
    await first.start()
    nodes: list[DhtNode] = [first]
    for index in range(1, NUM_PUBLISHERS):
        node = make_node(index, (first.endpoint,), clock=clock, timeout_s=TIMEOUT_S)
        await node.start()
        nodes.append(node)
    try:
        await until(lambda: all(len(node.service.table) for node in nodes), what="contacts")
        for node in nodes:
            assert await node.service.publish(draft_of(node.index))
        asker = min(nodes, key=lambda node: node.service.get_status()["records"])
        for node in nodes:
            if node is not asker:
                node.wire.tamper = dribbles
                node.wire.delay_s = 0.9 * TIMEOUT_S
        began_at = clock.monotonic()
        found = await asker.service.lookup(KEY)
        lasted_s = clock.monotonic() - began_at
        fired = sum(node.wire.fired["lied"] for node in nodes)
    finally:
        for node in nodes:
            await node.kill()
    assert fired > 10
    assert len(found) > 1
    walk_s = NUM_PUBLISHERS / NUM_WALKERS * TIMEOUT_S
    assert lasted_s < 2 * (MAX_DRAIN_S + TIMEOUT_S) + walk_s
