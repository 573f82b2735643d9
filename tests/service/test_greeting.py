"""Greeting endpoints that peers may be at: what a search, a name or a file leads to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from test_heartbeat_service import INTERVAL_S, Swarm

from neuroswarm.heartbeat.restraint import BURST
from neuroswarm.values import Endpoint


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    async with AsyncExitStack() as stack:
        yield Swarm(stack)


async def test_a_greeted_node_is_known_after_one_round_trip_and_knows(swarm):
    a, b = await swarm.add(), await swarm.add()
    a.service.greet([b.endpoint])
    await swarm.settle()
    assert swarm.sees(a) == {b.id}
    assert swarm.sees(b) == {a.id}


async def test_whom_the_user_named_is_greeted_as_often_as_asked_and_others_seldom(swarm):
    a = await swarm.add()
    for _ in range(20):
        a.service.greet([Endpoint("10.0.9.1", 9999)], is_given=True)
    assert a.service.num_sent == 20
    for _ in range(20):
        a.service.greet([Endpoint("10.0.9.2", 9999)])
    assert a.service.num_sent == 20 + BURST


async def test_a_known_peer_is_not_greeted_besides_its_heartbeats(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    before = a.service.num_sent
    a.service.greet([b.endpoint], is_given=True)
    assert a.service.num_sent == before
    await b.service.stop()
    await swarm.clock.advance(4 * INTERVAL_S)
    before = a.service.num_sent
    a.service.greet([b.endpoint], is_given=True)
    assert a.service.num_sent == before + 1


async def test_nobody_is_greeted_before_the_start_and_after_the_end(swarm):
    a = await swarm.add()
    await a.service.stop()
    before = a.service.num_sent
    a.service.greet([Endpoint("10.0.9.1", 9999)], is_given=True)
    assert a.service.num_sent == before
