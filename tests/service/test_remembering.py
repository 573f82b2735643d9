"""Peers of former days: kept on the disk, greeted at the next start."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from test_heartbeat_service import INTERVAL_S, Node, Swarm

from neuroswarm.discovery.peers_file import decode_acquaintances
from neuroswarm.node import remembering
from neuroswarm.node.remembering import Rememberer
from neuroswarm.values import Endpoint


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    async with AsyncExitStack() as stack:
        yield Swarm(stack)


def memory_of(swarm: Swarm, node: Node, folder: Path) -> Rememberer:
    return Rememberer(
        folder / "peers.json", peers=node.peers, heartbeat=node.service, clock=swarm.clock
    )


def read(folder: Path) -> set[Endpoint]:
    known = decode_acquaintances((folder / "peers.json").read_bytes())
    return {peer.heartbeat_endpoint for peer in known}


async def test_a_node_that_was_given_nothing_finds_the_peers_of_last_time(swarm, tmp_path):
    a = await swarm.add()
    others = [await swarm.add(a) for _ in range(3)]
    await swarm.clock.advance(2 * INTERVAL_S)
    async with memory_of(swarm, a, tmp_path):
        pass
    assert read(tmp_path) == {other.endpoint for other in others}
    await a.service.stop()
    again = await swarm.add()
    assert swarm.sees(again) == set()
    async with memory_of(swarm, again, tmp_path) as memory:
        assert memory.num_known == 3
        await swarm.settle()
        assert swarm.sees(again) >= {other.id for other in others}


async def test_a_peer_of_last_time_is_tried_until_it_is_back(swarm, tmp_path):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.clock.advance(INTERVAL_S)
    async with memory_of(swarm, a, tmp_path):
        pass
    await a.service.stop()
    await b.service.stop()
    await b.datagrams.stop()
    again = await swarm.add()
    async with memory_of(swarm, again, tmp_path):
        await swarm.clock.advance(50 * INTERVAL_S)
        assert swarm.sees(again) == set()
        back = swarm.make(b.endpoint, (), b.key, 1, {})
        await swarm.stack.enter_async_context(back.datagrams)
        await swarm.stack.enter_async_context(back.service)
        await swarm.clock.advance(2 * INTERVAL_S)
        assert swarm.sees(again) == {b.id}
        assert swarm.sees(back) == {again.id}


async def test_who_left_meanwhile_is_remembered_too(swarm, tmp_path):
    a = await swarm.add()
    b = await swarm.add(a)
    async with memory_of(swarm, a, tmp_path):
        await swarm.clock.advance(2 * INTERVAL_S)
        await b.service.stop()
        await swarm.clock.advance(20 * INTERVAL_S)
    assert read(tmp_path) == {b.endpoint}


async def test_the_disk_is_written_once_in_ten_minutes_at_most(swarm, tmp_path):
    a = await swarm.add()
    async with memory_of(swarm, a, tmp_path):
        b = await swarm.add(a)
        await advance_to_a_look(swarm)
        await until_written(swarm, tmp_path, {b.endpoint})
        c = await swarm.add(a)
        await swarm.clock.advance(remembering.MIN_WRITE_S / 2)
        assert read(tmp_path) == {b.endpoint}
        await swarm.clock.advance(remembering.MIN_WRITE_S)
        await until_written(swarm, tmp_path, {b.endpoint, c.endpoint})


async def advance_to_a_look(swarm: Swarm) -> None:
    await swarm.clock.advance(1.5 * remembering.LOOK_S)


async def until_written(swarm: Swarm, folder: Path, wanted: set[Endpoint]) -> None:
    """Wait until a thread has written the file."""
    while not (folder / "peers.json").exists() or read(folder) != wanted:
        await swarm.clock.advance(0.0)


@pytest.mark.parametrize("content", [b"", b"{", b"x" * 100_000])
async def test_a_damaged_file_is_said_once_and_written_anew(swarm, tmp_path, caplog, content):
    caplog.set_level(logging.WARNING)
    (tmp_path / "peers.json").write_bytes(content)
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    async with memory_of(swarm, a, tmp_path) as memory:
        assert memory.num_known == 0
    assert read(tmp_path) == {b.endpoint}
    assert len(caplog.records) == 1
    assert "peers are not remembered: cannot read" in caplog.text


async def test_a_disk_that_refuses_is_said_once(swarm, tmp_path, caplog):
    a = await swarm.add()
    await swarm.add(a)
    await swarm.settle()
    async with memory_of(swarm, a, tmp_path / "gone"):
        await advance_to_a_look(swarm)
    assert len(caplog.records) == 1
    assert "peers are not remembered: cannot write" in caplog.text
