"""What `transport.Rpc` and `transport.Datagrams` promise, of gRPC and UDP as of the memory ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import pytest

from neuroswarm.errors import (
    LifecycleError,
    PeerUnreachable,
    ProtocolViolation,
    SchemaMismatch,
    StaleMessage,
)
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.transport import Admission
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire import limits

TOKEN = SwarmToken(bytes(range(32)))
FREE = Endpoint("127.0.0.1", 0)

RpcEnd = GrpcTransport | MemoryRpc
DatagramEnd = UdpTransport | MemoryDatagrams
MakeRpc = Callable[[Endpoint | None], RpcEnd]
MakeDatagrams = Callable[[Endpoint | None], DatagramEnd]


@pytest.fixture(params=["grpc", "memory"])
def make_rpc(request: pytest.FixtureRequest) -> MakeRpc:
    if request.param == "grpc":
        return lambda at: GrpcTransport(issue(TOKEN, NodeKey.generate()), at or FREE)
    network = MemoryNetwork()
    count = iter(range(100))

    def make(at: Endpoint | None) -> MemoryRpc:
        number = next(count)
        endpoint = at or Endpoint(f"10.1.0.{number}", 8101)
        return network.rpc(NodeId(bytes([number]) * 20), endpoint)

    return make


@pytest.fixture(params=["udp", "memory"])
def make_datagrams(request: pytest.FixtureRequest) -> MakeDatagrams:
    if request.param == "udp":
        return lambda at: UdpTransport(Sealer(TOKEN.datagram_key), at or FREE)
    return MemoryNetwork().datagrams


@dataclass
class Answers:
    """A node's handlers, and what happened to them."""

    callers: list[NodeId] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def serve(self, rpc: RpcEnd) -> None:
        rpc.serve_unary("Test/Echo", self.echo)
        rpc.serve_unary("Test/Refuse", self.refuse)
        rpc.serve_unary("Test/Hang", self.hang)
        rpc.serve_stream("Test/Count", self.count)
        rpc.serve_stream("Test/HangHalfWay", self.hang_half_way)

    async def echo(self, caller: NodeId, request: bytes) -> bytes:
        self.callers.append(caller)
        return request

    async def refuse(self, _caller: NodeId, _request: bytes) -> bytes:
        raise SchemaMismatch("wrong shape: 3 (limit 2)")

    async def hang(self, _caller: NodeId, _request: bytes) -> bytes:
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled.set()
        raise AssertionError("nobody completes that future")

    async def count(self, _caller: NodeId, request: bytes) -> AsyncIterator[bytes]:
        for number in range(request[0]):
            yield bytes([number])
        if request[0] == 3:
            raise StaleMessage("round 3 is over")

    async def hang_half_way(self, _caller: NodeId, _request: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled.set()


async def collect(messages: AsyncIterator[bytes], into: list[bytes]) -> None:
    async for message in messages:
        into.append(message)  # noqa: PERF401  (kept also when the stream fails)


@dataclass
class Pair:
    alice: RpcEnd
    bob: RpcEnd
    at_bob: Answers


@pytest.fixture
async def pair(make_rpc: MakeRpc) -> AsyncIterator[Pair]:
    alice, bob, answers = make_rpc(None), make_rpc(None), Answers()
    answers.serve(bob)
    async with alice, bob:
        yield Pair(alice, bob, answers)


@pytest.mark.parametrize("size", [0, 1, 70_000, limits.MAX_MESSAGE_BYTES], ids=str)
async def test_call_returns_the_reply_and_names_the_caller(pair: Pair, size: int):
    request = bytes(size)
    reply = await pair.alice.call(pair.bob.address, "Test/Echo", request, timeout_s=10)
    assert reply == request
    assert pair.at_bob.callers == [pair.alice.address.node_id]


async def test_bytes_are_counted_on_both_sides(pair: Pair):
    await pair.alice.call(pair.bob.address, "Test/Echo", bytes(100), timeout_s=10)
    async for _ in pair.alice.stream(pair.bob.address, "Test/Count", b"\5", timeout_s=10):
        pass
    assert (pair.alice.bytes_sent, pair.alice.bytes_received) == (100 + 1, 100 + 5)
    assert (pair.bob.bytes_received, pair.bob.bytes_sent) == (100 + 1, 100 + 5)


async def test_handlers_refusal_reaches_the_caller_with_its_reason(pair: Pair):
    with pytest.raises(ProtocolViolation, match=r"wrong shape: 3 \(limit 2\)") as caught:
        await pair.alice.call(pair.bob.address, "Test/Refuse", b"", timeout_s=10)
    assert caught.value.peer == pair.bob.address.node_id


async def test_unknown_method_is_refused(pair: Pair):
    with pytest.raises(ProtocolViolation, match="unknown method"):
        await pair.alice.call(pair.bob.address, "Test/Nothing", b"", timeout_s=10)
    with pytest.raises(ProtocolViolation, match="unknown method"):
        async for _ in pair.alice.stream(pair.bob.address, "Test/Nothing", b"", timeout_s=10):
            pass


async def test_guard_judges_every_request_before_its_handler(make_rpc: MakeRpc):
    alice, bob, answers = make_rpc(None), make_rpc(None), Answers()
    answers.serve(bob)
    asked: list[tuple[NodeId, int]] = []
    verdicts = iter((Admission.WELCOME, Admission.TOO_MUCH, Admission.BANNED, Admission.BANNED))

    def judge(caller: NodeId, num_bytes: int) -> Admission:
        asked.append((caller, num_bytes))
        return next(verdicts)

    bob.guard(judge)
    async with alice, bob:
        assert await alice.call(bob.address, "Test/Echo", b"1", timeout_s=10) == b"1"
        with pytest.raises(PeerUnreachable, match="busy"):
            await alice.call(bob.address, "Test/Echo", b"22", timeout_s=10)
        with pytest.raises(ProtocolViolation, match="banned for its conduct"):
            await alice.call(bob.address, "Test/Echo", b"333", timeout_s=10)
        with pytest.raises(ProtocolViolation, match="banned for its conduct"):
            await collect(alice.stream(bob.address, "Test/Count", b"4444", timeout_s=10), [])
        with pytest.raises(LifecycleError):
            bob.guard(judge)
    assert asked == [(alice.address.node_id, size) for size in (1, 2, 3, 4)]
    assert len(answers.callers) == 1
    assert bob.bytes_received == 1 + 2 + 3 + 4


async def test_silent_peer_is_unreachable_at_the_deadline_and_its_handler_ends(pair: Pair):
    with pytest.raises(PeerUnreachable) as caught:
        await pair.alice.call(pair.bob.address, "Test/Hang", b"", timeout_s=0.2)
    assert caught.value.peer == pair.bob.address.node_id
    await asyncio.wait_for(pair.at_bob.cancelled.wait(), 5)


async def test_cancelling_a_call_ends_its_handler(pair: Pair):
    calls = asyncio.ensure_future(pair.alice.call(pair.bob.address, "Test/Hang", b"", timeout_s=10))
    await asyncio.wait_for(pair.at_bob.started.wait(), 5)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls
    await asyncio.wait_for(pair.at_bob.cancelled.wait(), 5)


async def test_stream_yields_every_message_in_order(pair: Pair):
    messages = pair.alice.stream(pair.bob.address, "Test/Count", b"\x40", timeout_s=10)
    assert [m async for m in messages] == [bytes([i]) for i in range(64)]


async def test_empty_stream_ends_at_once(pair: Pair):
    messages = pair.alice.stream(pair.bob.address, "Test/Count", b"\0", timeout_s=10)
    assert [m async for m in messages] == []


async def test_refusal_in_a_stream_comes_after_what_was_sent(pair: Pair):
    got: list[bytes] = []
    with pytest.raises(ProtocolViolation, match="round 3 is over"):
        await collect(pair.alice.stream(pair.bob.address, "Test/Count", b"\3", timeout_s=10), got)
    assert got == [b"\0", b"\1", b"\2"]


async def test_stream_that_stalls_is_unreachable_at_the_deadline(pair: Pair):
    got: list[bytes] = []
    with pytest.raises(PeerUnreachable):
        await collect(
            pair.alice.stream(pair.bob.address, "Test/HangHalfWay", b"", timeout_s=0.3), got
        )
    assert got == [b"first"]
    await asyncio.wait_for(pair.at_bob.cancelled.wait(), 5)


async def test_closing_a_stream_ends_its_handler(pair: Pair):
    messages = pair.alice.stream(pair.bob.address, "Test/HangHalfWay", b"", timeout_s=10)
    async with aclosing(messages) as closing:  # type: ignore[type-var]
        async for message in closing:
            assert message == b"first"
            break
    await asyncio.wait_for(pair.at_bob.cancelled.wait(), 5)


async def test_many_calls_at_once_all_get_their_own_reply(pair: Pair):
    replies = await asyncio.gather(
        *(
            pair.alice.call(pair.bob.address, "Test/Echo", bytes([i]), timeout_s=10)
            for i in range(100)
        )
    )
    assert replies == [bytes([i]) for i in range(100)]


async def test_nobody_at_the_address_is_unreachable(pair: Pair, make_rpc: MakeRpc):
    async with make_rpc(None) as gone:
        address = gone.address
    with pytest.raises(PeerUnreachable):
        await pair.alice.call(address, "Test/Echo", b"", timeout_s=2)
    with pytest.raises(PeerUnreachable):
        async for _ in pair.alice.stream(address, "Test/Count", b"\1", timeout_s=2):
            pass


async def test_another_node_at_the_address_is_not_taken_for_the_one_called(pair: Pair):
    stale = PeerAddress(pair.alice.address.node_id, pair.bob.endpoint)
    with pytest.raises(PeerUnreachable):
        await pair.alice.call(stale, "Test/Echo", b"", timeout_s=5)
    assert pair.at_bob.callers == []


async def test_peer_that_comes_back_at_its_address_is_reached_again(make_rpc: MakeRpc):
    """A new node at the old endpoint, as after a restart with a new identity."""
    async with make_rpc(None) as alice:
        first = make_rpc(None)
        first_answers = Answers()
        first_answers.serve(first)
        async with first:
            await alice.call(first.address, "Test/Echo", b"", timeout_s=10)
        second, second_answers = make_rpc(first.endpoint), Answers()
        second_answers.serve(second)
        async with second:
            assert await alice.call(second.address, "Test/Echo", b"2", timeout_s=10) == b"2"


async def test_stopping_the_caller_ends_its_calls(pair: Pair):
    call = asyncio.ensure_future(pair.alice.call(pair.bob.address, "Test/Hang", b"", timeout_s=10))
    await asyncio.wait_for(pair.at_bob.started.wait(), 5)
    await pair.alice.stop()
    with pytest.raises(PeerUnreachable):
        await call


async def test_stopping_the_peer_ends_calls_to_it(pair: Pair):
    call = asyncio.ensure_future(pair.alice.call(pair.bob.address, "Test/Hang", b"", timeout_s=10))
    await asyncio.wait_for(pair.at_bob.started.wait(), 5)
    await pair.bob.stop()
    with pytest.raises(PeerUnreachable):
        await call


async def test_states_that_do_not_allow_a_call_say_so(make_rpc: MakeRpc):
    rpc, answers = make_rpc(None), Answers()
    answers.serve(rpc)
    with pytest.raises(ValueError, match="served twice"):
        answers.serve(rpc)
    address = PeerAddress(NodeId(bytes(20)), FREE)
    with pytest.raises(LifecycleError):
        await rpc.call(address, "Test/Echo", b"", timeout_s=1)
    async with rpc:
        with pytest.raises(LifecycleError):
            rpc.serve_unary("Test/Late", answers.echo)
        with pytest.raises(ValueError, match="too large"):
            await rpc.call(address, "Test/Echo", bytes(limits.MAX_MESSAGE_BYTES + 1), timeout_s=1)
    with pytest.raises(PeerUnreachable):
        await rpc.call(address, "Test/Echo", b"", timeout_s=1)


@dataclass
class Inbox:
    got: list[tuple[bytes, Endpoint]] = field(default_factory=list)
    refused: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, data: bytes, source: Endpoint) -> None:
        self.changed.set()
        if data == self.refused:
            raise SchemaMismatch("not for me")
        self.got.append((data, source))

    async def wait_for(self, num_datagrams: int) -> None:
        async with asyncio.timeout(5):
            while len(self.got) < num_datagrams:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("size", [0, 1, limits.MAX_DATAGRAM_BYTES], ids=str)
async def test_datagram_arrives_with_its_source(make_datagrams: MakeDatagrams, size: int):
    alice, bob, inbox = make_datagrams(None), make_datagrams(None), Inbox(refused=b"refused")
    bob.on_datagram(inbox.take)
    async with alice, bob:
        alice.send(bob.endpoint, bytes(size))
        await inbox.wait_for(1)
        assert inbox.got == [(bytes(size), alice.endpoint)]
        assert alice.bytes_sent == bob.bytes_received == size + 28
        assert alice.bytes_received == bob.bytes_sent == 0


async def test_refused_datagram_is_counted_and_the_next_one_taken(
    make_datagrams: MakeDatagrams,
):
    alice, bob, inbox = make_datagrams(None), make_datagrams(None), Inbox(refused=b"bad")
    bob.on_datagram(inbox.take)
    async with alice, bob:
        alice.send(bob.endpoint, b"bad")
        alice.send(bob.endpoint, b"good")
        await inbox.wait_for(1)
        assert inbox.got == [(b"good", alice.endpoint)]
        assert bob.num_dropped == 1


async def test_datagram_to_nobody_is_lost_in_silence(make_datagrams: MakeDatagrams):
    alice, bob, inbox = make_datagrams(None), make_datagrams(None), Inbox()
    bob.on_datagram(inbox.take)
    async with alice, bob:
        async with make_datagrams(None) as gone:
            nobody = gone.endpoint
        alice.send(nobody, b"lost")
        alice.send(bob.endpoint, b"found")
        await inbox.wait_for(1)
        assert alice.bytes_sent == 28 + 4 + 28 + 5


async def test_states_that_do_not_allow_a_datagram_say_so(make_datagrams: MakeDatagrams):
    alice = make_datagrams(None)
    with pytest.raises(LifecycleError):
        alice.send(FREE, b"")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(alice)
        with pytest.raises(LifecycleError):
            alice.on_datagram(Inbox().take)
        with pytest.raises(ValueError, match="too large"):
            alice.send(alice.endpoint, bytes(limits.MAX_DATAGRAM_BYTES + 1))
        endpoint = alice.endpoint
    alice.send(endpoint, b"after the end")
    assert alice.bytes_sent == 0


async def test_endpoint_is_free_again_after_stop(make_datagrams: MakeDatagrams):
    async with make_datagrams(None) as first:
        endpoint = first.endpoint
    async with make_datagrams(endpoint) as second:
        assert second.endpoint == endpoint
