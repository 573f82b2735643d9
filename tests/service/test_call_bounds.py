"""Callers that take nothing, ask too much at once or wait for ever keep nobody else out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from neuroswarm.errors import PeerUnreachable, ProtocolViolation
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net import grpc_client
from neuroswarm.net.grpc_settings import CallBounds
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.values import Endpoint, NodeId

TOKEN = SwarmToken(bytes(range(32)))
CHUNK, NUM_CHUNKS = bytes(256 * 1024), 40


def make_rpc(bounds: CallBounds | None = None) -> GrpcTransport:
    return GrpcTransport(issue(TOKEN, NodeKey.generate()), Endpoint("127.0.0.1", 0), bounds=bounds)


class Host:
    """Answers at once, never, or with more than a caller's buffers hold."""

    def __init__(self, bounds: CallBounds) -> None:
        self.rpc = make_rpc(bounds)
        self.num_sent = 0
        self.has_ended = asyncio.Event()
        self.num_waiting = 0
        self.came = asyncio.Event()
        self.rpc.serve_unary("Test/Echo", self.echo)
        self.rpc.serve_unary("Test/Wait", self.wait)
        self.rpc.serve_stream("Test/Flow", self.flow)

    async def echo(self, _caller: NodeId, request: bytes) -> bytes:
        return request

    async def wait(self, _caller: NodeId, _request: bytes) -> bytes:
        self.num_waiting += 1
        self.came.set()
        return await asyncio.get_running_loop().create_future()

    async def flow(self, _caller: NodeId, _request: bytes) -> AsyncIterator[bytes]:
        try:
            for _ in range(NUM_CHUNKS):
                self.num_sent += 1
                yield CHUNK
        finally:
            self.has_ended.set()

    async def hold(self, caller: GrpcTransport, num: int) -> list[asyncio.Future[bytes]]:
        """So many calls of a caller that are not answered."""
        wanted = self.num_waiting + num
        calls = [
            asyncio.ensure_future(caller.call(self.rpc.address, "Test/Wait", b"", timeout_s=60))
            for _ in range(num)
        ]
        while self.num_waiting < wanted:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 5)
        return calls


async def open_stream(caller: GrpcTransport, host: Host) -> AsyncGenerator[bytes, None]:
    """One that was read once."""
    stream = caller.stream(host.rpc.address, "Test/Flow", b"", timeout_s=60)
    assert isinstance(stream, AsyncGenerator)
    assert await asyncio.wait_for(anext(stream), 5) == CHUNK
    return stream


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch):
    """Callers that take no more than they read."""
    real = grpc_client.channel_options
    monkeypatch.setattr(
        grpc_client,
        "channel_options",
        lambda *args, **how: [
            *real(*args, **how),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 1),
        ],
    )


async def test_a_stream_that_nobody_takes_ends_and_frees_its_room():
    host = Host(CallBounds(max_write_s=0.2, least_bytes_per_s=1e9, max_streams_per_caller=1))
    async with host.rpc, make_rpc() as caller:
        stream = await open_stream(caller, host)
        await asyncio.wait_for(host.has_ended.wait(), 5)
        assert host.num_sent < NUM_CHUNKS
        second = await open_stream(caller, host)
        for one in (stream, second):
            await one.aclose()


async def test_a_stream_that_is_taken_comes_whole():
    host = Host(CallBounds(max_write_s=2.0, least_bytes_per_s=1e9))
    async with host.rpc, make_rpc() as caller:
        stream = await open_stream(caller, host)
        assert len([message async for message in stream]) == NUM_CHUNKS - 1


async def test_a_caller_has_few_streams_at_once_and_other_calls_besides():
    host = Host(CallBounds(max_streams_per_caller=2))
    async with host.rpc, make_rpc() as caller:
        streams = [await open_stream(caller, host) for _ in range(2)]
        with pytest.raises(PeerUnreachable, match="busy"):
            await open_stream(caller, host)
        reply = await caller.call(host.rpc.address, "Test/Echo", b"x", timeout_s=5)
        assert reply == b"x"
        for stream in streams:
            await stream.aclose()


async def test_own_streams_beyond_the_bound_wait_for_their_turn():
    host = Host(CallBounds(max_streams_per_caller=1))
    async with host.rpc, make_rpc(CallBounds(max_streams_per_peer=1)) as caller:
        stream = await open_stream(caller, host)
        waiting = asyncio.ensure_future(open_stream(caller, host))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        assert len([message async for message in stream]) == NUM_CHUNKS - 1
        await (await waiting).aclose()


async def test_an_answer_that_does_not_come_ends_the_call():
    host = Host(CallBounds(max_handling_s=0.1))
    async with host.rpc, make_rpc() as caller:
        with pytest.raises(PeerUnreachable, match="no answer to Test/Wait"):
            async with asyncio.timeout(5):
                await caller.call(host.rpc.address, "Test/Wait", b"", timeout_s=60)


async def test_a_call_that_would_wait_for_very_long_is_refused():
    host = Host(CallBounds(max_call_s=5.0))
    async with host.rpc, make_rpc() as caller:
        with pytest.raises(ProtocolViolation, match="deadline within 5 s"):
            await caller.call(host.rpc.address, "Test/Echo", b"", timeout_s=60)
        assert await caller.call(host.rpc.address, "Test/Echo", b"x", timeout_s=5) == b"x"


async def test_some_room_is_kept_for_callers_with_few_calls():
    host = Host(CallBounds(max_calls=8))
    async with host.rpc, make_rpc() as greedy, make_rpc() as other, make_rpc() as modest:
        held = await host.hold(greedy, 6)
        with pytest.raises(PeerUnreachable, match="busy"):
            await greedy.call(host.rpc.address, "Test/Echo", b"", timeout_s=5)
        held += await host.hold(other, 1)
        assert await modest.call(host.rpc.address, "Test/Echo", b"x", timeout_s=5) == b"x"
        held += await host.hold(modest, 1)
        with pytest.raises(PeerUnreachable, match="busy"):
            await other.call(host.rpc.address, "Test/Echo", b"", timeout_s=5)
        for call in held:
            call.cancel()
        await asyncio.gather(*held, return_exceptions=True)
