"""Nodes that others cannot reach are called through a third one, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from relay_scene import CLOSED_PORT, Scene

from neuroswarm.config.sections import RelayConfig
from neuroswarm.errors import PeerUnreachable, ProtocolViolation
from neuroswarm.relay import desk
from neuroswarm.relay.desk import ATTACH, PUSH
from neuroswarm.relay.switchboard import Switchboard
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.waiting import until
from neuroswarm.values import Endpoint, NodeId, PeerAddress, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.relaying import Attachment, Frame, encode_frames

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        yield Scene(stack)


async def relayed_pair(scene: Scene):
    """Two nodes that nobody reaches, and one that everybody does."""
    anna, bert = await scene.add(is_closed=True), await scene.add(is_closed=True)
    carl = await scene.add()
    await until(lambda: anna.relays == bert.relays == (carl.id,))
    return anna, bert, carl


async def test_two_closed_nodes_call_each_other_through_an_open_one(scene):
    anna, bert, carl = await relayed_pair(scene)
    await until(lambda: carl.reach.reach is Reach.OPEN)
    assert anna.reach.get_status()["reachable"] is False
    assert anna.peers.get(bert.id).address.endpoint.port == CLOSED_PORT
    assert await anna.call(bert) == b"hello"
    assert await bert.call(anna, bytes(3_000_000)) == bytes(3_000_000)
    assert bert.asked == [anna.id], "TLS within the pipe proves who calls"
    assert anna.asked == [bert.id]
    status = carl.relaying.get_status()["relayed"]
    assert status["nodes"] >= 2
    assert status["bytes"] > 6_000_000
    assert status["cut"] == 0


async def test_an_open_node_calls_the_closed_ones_that_it_relays_for(scene):
    anna, _, carl = await relayed_pair(scene)
    assert await carl.call(anna) == b"hello"
    assert anna.asked == [carl.id]


async def test_a_node_calls_through_a_relay_that_is_not_its_own(scene):
    anna, _, carl = await relayed_pair(scene)
    dora = await scene.add()
    await until(lambda: dora.peers.get(anna.id).heartbeat.relays == (carl.id,))
    assert await dora.call(anna) == b"hello"
    assert carl.relaying.desk.board.find(dora.id) is not None


async def test_another_relay_takes_over(scene):
    anna, bert, carl = await relayed_pair(scene)
    assert await anna.call(bert) == b"hello"
    dora = await scene.add()
    await until(lambda: dora.id in anna.relays and dora.id in bert.relays)
    await scene.stop(carl)
    await until(lambda: anna.relays == bert.relays == (dora.id,))
    scene.tell()
    answered = False
    while not answered:  # what was in flight has failed; the next pipe goes through the other
        try:
            answered = await anna.call(bert) == b"hello"
        except PeerUnreachable:
            await asyncio.sleep(0)
    assert dora.relaying.desk.board.num_pipes > 0


async def test_a_node_that_is_reached_after_all_is_called_straight(scene):
    anna, _, carl = await relayed_pair(scene)
    assert await carl.call(anna) == b"hello"
    anna.is_closed = False
    scene.tell()
    assert await carl.reach.dial_back.reaches(carl.address_of(anna)) == ""
    assert not carl.relaying.paths.needs_pipe(anna.id)
    before = carl.relaying.desk.board.num_bytes
    assert await carl.call(anna, bytes(1_000_000)) == bytes(1_000_000)
    assert carl.relaying.desk.board.num_bytes < before + 1_000_000


async def test_nobody_is_relayed_for_where_that_is_off(scene):
    anna = await scene.add(is_closed=True)
    carl = await scene.add(relay=RelayConfig(enabled=False))
    await until(lambda: carl.reach.reach is not Reach.UNKNOWN or anna.reach.verdicts.missed_by)
    dora = await scene.add()
    await until(lambda: anna.relays == (dora.id,))
    assert carl.relaying.desk.board.num_lines == 0


async def test_an_outsider_of_the_pair_cannot_pass_as_one_of_them(scene):
    """A relay that leads a pipe elsewhere brings nothing but a failed call."""
    anna, bert, carl = await relayed_pair(scene)
    board, carry = carl.relaying.desk.board, carl.relaying.desk.board.take

    def mislead(line, frames):
        there = {bert.id: carl.id}
        carry(line, [Frame(f.pipe, there.get(f.open, f.open), f.credit, f.data) for f in frames])

    board.take = mislead
    carl.relaying.lines._attach(carl.id, takes_pipes=True)
    with pytest.raises(PeerUnreachable):
        await anna.call(bert)
    assert bert.asked == carl.asked == []


async def test_a_deaf_attached_node_holds_up_nobody_else(scene):
    anna, bert, carl = await relayed_pair(scene)
    deaf, session = await scene.add_bare(), b"deaf one"
    address = carl.carriers.rpc.address
    stream = deaf.stream(address, ATTACH, Attachment(session, True).encode(), timeout_s=60)
    await anext(stream)
    frames = [Frame(1, open=anna.id, data=b"\x16" * 30_000)]
    await deaf.call(address, PUSH, encode_frames(session, frames), timeout_s=30)
    assert await bert.call(anna) == b"hello"
    await stream.aclose()
    await until(lambda: carl.relaying.desk.board.find(deaf.address.node_id) is None)


async def test_an_attachment_is_taken_up_again_in_good_order(
    scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(desk, "ATTACHED_S", 0.3)
    anna, bert, carl = await relayed_pair(scene)
    sessions = [carl.relaying.desk.board.find(node.id).session for node in (anna, bert)]
    data = bytes(range(256)) * 40_000
    for _ in range(3):
        assert await anna.call(bert, data[:3_000_000]) == data[:3_000_000]
    lines = [carl.relaying.desk.board.find(node.id) for node in (anna, bert)]
    assert [line.session for line in lines] == sessions
    assert anna.relays == bert.relays == (carl.id,)


async def test_what_a_node_sends_through_a_relay_is_slowed_down_to_its_rate():
    clock, network, blamed = FakeClock(), MemoryNetwork(), []
    async with AsyncExitStack() as stack:
        relay, caller = network.rpc(NodeId(b"r" * 20)), network.rpc(NodeId(b"c" * 20))
        config = RelayConfig(max_mbit_per_node=0.8)  # 100,000 bytes a second
        desk.RelayDesk(config, relay, Switchboard(), blame=blamed.append, clock=clock)
        for rpc in (relay, caller):
            await stack.enter_async_context(rpc)
        attachment = Attachment(b"session1", takes_pipes=False)
        stream = caller.stream(relay.address, ATTACH, attachment.encode(), timeout_s=60)
        await anext(stream)
        request = encode_frames(b"session1", [Frame(1, data=bytes(30_000))] * 3)
        sending = [
            asyncio.ensure_future(caller.call(relay.address, PUSH, request, timeout_s=60))
            for _ in range(6)
        ]
        await clock.advance(0.0)
        burst = limits.MAX_FRAMES_BYTES // len(request)
        assert sum(push.done() for push in sending) == burst < len(sending) - 1
        for num_done in range(burst + 1, len(sending)):
            await clock.advance(1.0)
            assert sum(push.done() for push in sending) == num_done
        await clock.advance(2.0)
        await asyncio.wait_for(asyncio.gather(*sending), 5)
        await stream.aclose()
    assert blamed == []


async def test_who_sends_what_no_node_makes_is_blamed(scene):
    carl, liar = await scene.add(), await scene.add_bare()
    address = carl.carriers.rpc.address
    stream = liar.stream(address, ATTACH, Attachment(b"session1", True).encode(), timeout_s=60)
    await anext(stream)
    request = encode_frames(b"session1", [Frame(2, open=carl.id)])
    for _ in range(5):
        with pytest.raises(ProtocolViolation, match="pipe number 2"):
            await liar.call(address, PUSH, request, timeout_s=30)
    await stream.aclose()
    assert carl.peers.is_banned(liar.address.node_id, scene.clock.monotonic())


async def test_who_says_to_be_reached_by_most_is_called_straight_until_that_fails(scene):
    anna, _, carl = await relayed_pair(scene)
    peer = carl.peers.get(anna.id)
    assert peer.needs_relay
    peer.is_dialled, peer.heartbeat = None, replace(peer.heartbeat, reach=Reach.OPEN)
    assert not peer.needs_relay
    await until(lambda: peer.is_dialled is False)
    assert peer.needs_relay


async def test_a_peer_without_any_usable_relay_is_unreachable(scene):
    anna, _, carl = await relayed_pair(scene)
    # Once carl is gone, anna would take dora.
    dora = await scene.add(relay=RelayConfig(enabled=False))
    await until(lambda: dora.peers.get(anna.id).heartbeat.relays == (carl.id,))
    await scene.stop(carl)
    with pytest.raises(PeerUnreachable):
        await dora.call(anna)
    with pytest.raises(PeerUnreachable, match="not known any more"):
        await dora.relaying.paths.open(carl.carriers.rpc.address.node_id.__class__(bytes(20)))
    assert PeerAddress(anna.id, Endpoint("127.0.0.1", CLOSED_PORT)) == dora.address_of(anna)
