"""A link that carries heartbeats one way only is named on the side that hears."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from test_heartbeat_service import INTERVAL_S, Swarm

from neuroswarm.heartbeat.datagram import decode_datagram, encode_datagram
from neuroswarm.heartbeat.links import Hears
from neuroswarm.testing.faults import DATAGRAM
from neuroswarm.v1 import heartbeat_pb2


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    async with AsyncExitStack() as stack:
        yield Swarm(stack)


async def test_tables_are_symmetric_after_three_heartbeats_and_no_link_is_named(swarm):
    a = await swarm.add()
    others = [await swarm.add(a) for _ in range(3)]
    await swarm.clock.advance(3 * INTERVAL_S)
    everyone = {a.id, *(node.id for node in others)}
    assert all(swarm.sees(node) == everyone - {node.id} for node in (a, *others))
    await swarm.clock.advance(6 * INTERVAL_S)
    assert all(node.service.one_way_links == [] for node in (a, *others))


async def test_who_is_heard_but_does_not_hear_is_named_and_said_once(swarm, caplog):
    caplog.set_level(logging.WARNING)
    a = await swarm.add()
    b = await swarm.add(a)
    lost = swarm.network.drop(a.id, b.id, DATAGRAM)
    await swarm.clock.advance(6 * INTERVAL_S)
    assert lost.fired > 0
    assert swarm.sees(a) == {b.id}
    assert swarm.sees(b) == set()
    assert a.service.one_way_links == [b.id]
    assert b.service.one_way_links == []
    assert sum("does not hear this node" in r.getMessage() for r in caplog.records) == 1
    swarm.network.remove(lost)
    await swarm.clock.advance(2 * INTERVAL_S)
    assert a.service.one_way_links == []
    assert swarm.sees(b) == {a.id}


async def test_what_a_later_version_says_of_hearing_is_not_known(swarm):
    a, b = await swarm.add(), await swarm.add()
    data = encode_datagram(a.record.make(0.0), [], Hears.NO)
    assert decode_datagram(data).hears is Hears.NO
    message = heartbeat_pb2.HeartbeatDatagram.FromString(data)
    message.hears = 7  # type: ignore[assignment]
    assert decode_datagram(message.SerializeToString()).hears is Hears.UNKNOWN
    assert b.service.one_way_links == []
