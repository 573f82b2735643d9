"""Faults of the in-memory network: each strikes where it was told to, and counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from neuroswarm.errors import PeerUnreachable, SchemaMismatch
from neuroswarm.testing.faults import DATAGRAM, Passage
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.values import Endpoint, NodeId, PeerAddress

ALICE, BOB, CAROL = (NodeId(bytes([i]) * 20) for i in (1, 2, 3))


class Swarm:
    """Three nodes that echo calls and note datagrams."""

    def __init__(self, seed: int = 0) -> None:
        self.network = MemoryNetwork(seed)
        self.rpcs = {node: self.make_rpc(node) for node in (ALICE, BOB, CAROL)}
        self.datagrams = {node: self.make_datagrams(node) for node in (ALICE, BOB, CAROL)}
        self.asked: list[tuple[NodeId, bytes]] = []
        self.got: list[tuple[NodeId, bytes]] = []
        self.hanging = asyncio.Event()
        self.all_here = asyncio.Event()
        """50 datagrams have arrived."""

    def make_rpc(self, node: NodeId) -> MemoryRpc:
        rpc = self.network.rpc(node)
        rpc.serve_unary("Test/Echo", self.echo)
        rpc.serve_unary("Test/Other", self.echo)
        rpc.serve_unary("Test/Hang", self.hang)
        rpc.serve_stream("Test/Count", self.count)
        return rpc

    def make_datagrams(self, node: NodeId) -> MemoryDatagrams:
        end = self.network.datagrams(node_id=node)

        def take(data: bytes, _source: Endpoint) -> None:
            self.got.append((node, data))
            if len(self.got) == 50:
                self.all_here.set()

        end.on_datagram(take)
        return end

    async def start(self) -> None:
        for end in (*self.rpcs.values(), *self.datagrams.values()):
            await end.start()

    async def stop(self) -> None:
        for end in (*self.rpcs.values(), *self.datagrams.values()):
            await end.stop()

    async def echo(self, caller: NodeId, request: bytes) -> bytes:
        self.asked.append((caller, request))
        return request

    async def hang(self, _caller: NodeId, _request: bytes) -> bytes:
        self.hanging.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody completes that future")

    async def count(self, _caller: NodeId, request: bytes) -> AsyncIterator[bytes]:
        for number in range(request[0]):
            yield bytes([number])

    async def call(
        self, source: NodeId, target: NodeId, request: bytes = b"x", method: str = "Test/Echo"
    ) -> bool:
        """Whether a call went through."""
        peer = self.rpcs[target].address
        try:
            reply = await self.rpcs[source].call(peer, method, request, timeout_s=5)
        except PeerUnreachable:
            return False
        return reply == request

    async def send(self, source: NodeId, target: NodeId, data: bytes = b"x") -> bool:
        """Whether a datagram arrived."""
        self.datagrams[source].send(self.datagrams[target].endpoint, data)
        before = len(self.got)
        for _ in range(3):
            await asyncio.sleep(0)
        return len(self.got) > before


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    swarm = Swarm()
    await swarm.start()
    yield swarm
    await swarm.stop()


async def test_drop_strikes_one_direction_of_one_method(swarm: Swarm):
    fault = swarm.network.drop(ALICE, BOB, "Test/Echo")
    assert not await swarm.call(ALICE, BOB)
    assert await swarm.call(ALICE, BOB, method="Test/Other")
    assert await swarm.call(BOB, ALICE)
    assert await swarm.call(CAROL, BOB)
    assert await swarm.send(ALICE, BOB)
    assert fault.fired == 1
    assert swarm.asked == [(ALICE, b"x"), (BOB, b"x"), (CAROL, b"x")], "the lost one was not asked"


async def test_drop_of_a_reply_leaves_the_caller_in_doubt(swarm: Swarm):
    fault = swarm.network.drop(BOB, ALICE, "Test/Echo", replies=True)
    assert not await swarm.call(ALICE, BOB)
    assert swarm.asked == [(ALICE, b"x")]
    assert fault.fired == 1
    assert await swarm.call(BOB, ALICE)


async def test_drop_of_a_whole_link_strikes_requests_replies_and_datagrams(swarm: Swarm):
    fault = swarm.network.drop(ALICE, BOB)
    assert not await swarm.call(ALICE, BOB)
    assert not await swarm.call(BOB, ALICE)
    assert not await swarm.send(ALICE, BOB)
    assert await swarm.send(BOB, ALICE)
    assert swarm.asked == [(BOB, b"x")]
    assert fault.fired == 3


async def test_drop_by_count_ends_by_itself(swarm: Swarm):
    fault = swarm.network.drop(ALICE, BOB, when=2)
    assert [await swarm.call(ALICE, BOB) for _ in range(4)] == [False, False, True, True]
    assert fault.fired == 2


async def test_drop_by_predicate_sees_the_message(swarm: Swarm):
    def is_secret(passage: Passage) -> bool:
        return passage.data == b"secret" and not passage.is_reply

    fault = swarm.network.drop(when=is_secret)
    assert await swarm.call(ALICE, BOB, b"public")
    assert not await swarm.call(ALICE, BOB, b"secret")
    assert not await swarm.send(CAROL, BOB, b"secret")
    assert fault.fired == 2
    swarm.network.remove(fault)
    assert await swarm.call(ALICE, BOB, b"secret")
    assert fault.fired == 2


async def test_drop_of_datagrams_leaves_calls_alone(swarm: Swarm):
    fault = swarm.network.drop(ALICE, BOB, DATAGRAM)
    assert not await swarm.send(ALICE, BOB)
    assert await swarm.send(BOB, ALICE)
    assert await swarm.call(ALICE, BOB)
    assert fault.fired == 1


async def test_drop_in_the_middle_of_a_stream(swarm: Swarm):
    fault = swarm.network.drop(BOB, ALICE, when=lambda passage: passage.data == b"\2")
    peer, got = swarm.rpcs[BOB].address, []
    with pytest.raises(PeerUnreachable, match="was lost"):  # noqa: PT012  (until it breaks)
        async for message in swarm.rpcs[ALICE].stream(peer, "Test/Count", b"\5", timeout_s=5):
            got.append(message)  # noqa: PERF401  (kept also when the stream fails)
    assert got == [b"\0", b"\1"]
    assert fault.fired == 1


async def test_loss_strikes_about_its_share_and_the_same_ones_with_the_same_seed():
    async def run(seed: int) -> tuple[list[bool], int]:
        swarm = Swarm(seed)
        await swarm.start()
        fault = swarm.network.loss(0.2)
        arrived = [await swarm.send(ALICE, BOB) for _ in range(500)]
        await swarm.stop()
        return arrived, fault.fired

    arrived, num_fired = await run(1)
    assert arrived.count(False) == num_fired
    assert 60 < num_fired < 140, "500 x 0.2 within 4 standard deviations of 9"
    assert (arrived, num_fired) == await run(1)
    assert arrived != (await run(2))[0]


async def test_loss_on_a_link_does_not_depend_on_other_links():
    async def run(num_others: int) -> list[bool]:
        swarm = Swarm(5)
        await swarm.start()
        swarm.network.loss(0.5)
        arrived = []
        for _ in range(50):
            for _ in range(num_others):
                await swarm.send(CAROL, BOB)
            arrived.append(await swarm.send(ALICE, BOB))
        await swarm.stop()
        return arrived

    assert await run(0) == await run(3)


async def test_delay_reorders_datagrams_and_loses_none(swarm: Swarm):
    fault = swarm.network.delay(0.01)
    sent = [bytes([i]) for i in range(50)]
    for data in sent:
        swarm.datagrams[ALICE].send(swarm.datagrams[BOB].endpoint, data)
    async with asyncio.timeout(5):
        await swarm.all_here.wait()
    arrived = [data for _, data in swarm.got]
    assert arrived != sent
    assert sorted(arrived) == sent
    assert fault.fired == 50


async def test_delay_above_the_deadline_is_no_answer(swarm: Swarm):
    swarm.network.delay(1000, ALICE, BOB)
    with pytest.raises(PeerUnreachable, match="no answer"):
        await swarm.rpcs[ALICE].call(swarm.rpcs[BOB].address, "Test/Echo", b"", timeout_s=0.01)
    assert swarm.asked == []


async def test_partition_cuts_both_ways_until_it_heals(swarm: Swarm):
    fault = swarm.network.partition([ALICE], [BOB])
    assert not await swarm.call(ALICE, BOB)
    assert not await swarm.call(BOB, ALICE)
    assert not await swarm.send(ALICE, BOB)
    assert await swarm.call(ALICE, CAROL)
    assert await swarm.call(CAROL, BOB)
    assert fault.fired == 3
    swarm.network.heal()
    assert await swarm.call(ALICE, BOB)
    assert fault.fired == 3


async def test_kill_fails_calls_in_flight_and_later_ones(swarm: Swarm):
    call = asyncio.ensure_future(swarm.call(ALICE, BOB, method="Test/Hang"))
    await swarm.hanging.wait()
    swarm.network.kill(BOB)
    assert await call is False
    assert not await swarm.call(ALICE, BOB)
    assert not await swarm.call(BOB, ALICE)
    assert not await swarm.send(ALICE, BOB)
    assert not await swarm.send(BOB, ALICE)
    assert await swarm.call(ALICE, CAROL)


async def test_killed_node_comes_back_with_new_ends(swarm: Swarm):
    swarm.network.kill(BOB)
    old_rpc, old_datagrams = swarm.rpcs[BOB], swarm.datagrams[BOB]
    swarm.rpcs[BOB], swarm.datagrams[BOB] = swarm.make_rpc(BOB), swarm.make_datagrams(BOB)
    await swarm.rpcs[BOB].start()
    await swarm.datagrams[BOB].start()
    assert await swarm.call(ALICE, BOB)
    assert await swarm.send(BOB, ALICE)
    await old_rpc.stop()
    await old_datagrams.stop()
    assert await swarm.call(ALICE, BOB)


async def test_killing_the_caller_fails_its_call_too(swarm: Swarm):
    call = asyncio.ensure_future(swarm.call(ALICE, BOB, method="Test/Hang"))
    await swarm.hanging.wait()
    swarm.network.kill(ALICE)
    assert await call is False


async def test_calls_go_to_any_endpoint_unless_one_was_given():
    network = MemoryNetwork()
    place = Endpoint("10.9.9.9", 1)
    anywhere, somewhere, caller = network.rpc(ALICE), network.rpc(BOB, place), network.rpc(CAROL)

    async def echo(_caller: NodeId, request: bytes) -> bytes:
        return request

    for rpc in (anywhere, somewhere):
        rpc.serve_unary("Test/Echo", echo)
    async with anywhere, somewhere, caller:
        wrong = Endpoint("10.0.0.99", 5)
        await caller.call(PeerAddress(ALICE, wrong), "Test/Echo", b"", timeout_s=1)
        await caller.call(PeerAddress(BOB, place), "Test/Echo", b"", timeout_s=1)
        with pytest.raises(PeerUnreachable, match=r"it is at 10\.9\.9\.9:1 now"):
            await caller.call(PeerAddress(BOB, wrong), "Test/Echo", b"", timeout_s=1)


async def test_bug_in_a_handler_is_loud():
    network = MemoryNetwork()
    alice, bob = network.rpc(ALICE), network.rpc(BOB)

    async def fail(_caller: NodeId, _request: bytes) -> bytes:
        raise KeyError("a bug")

    async def time_out(_caller: NodeId, _request: bytes) -> bytes:
        raise TimeoutError("a bug as well")

    bob.serve_unary("Test/Bug", fail)
    bob.serve_unary("Test/Timeout", time_out)
    async with alice, bob:
        with pytest.raises(KeyError):
            await alice.call(bob.address, "Test/Bug", b"", timeout_s=1)
        with pytest.raises(TimeoutError, match="a bug as well"):
            await alice.call(bob.address, "Test/Timeout", b"", timeout_s=1)


async def test_datagram_end_without_a_node_is_struck_under_its_endpoint():
    network = MemoryNetwork()
    got: list[bytes] = []

    def take(data: bytes, _source: Endpoint) -> None:
        if data == b"bad":
            raise SchemaMismatch("bad")
        got.append(data)

    alice, bob = network.datagrams(), network.datagrams(Endpoint("10.9.9.9", 9999))
    bob.on_datagram(take)
    async with alice, bob:
        fault = network.drop(alice.endpoint, bob.endpoint, when=1)
        for data in (b"lost", b"bad", b"good"):
            alice.send(bob.endpoint, data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert got == [b"good"]
    assert (fault.fired, bob.num_dropped) == (1, 1)
