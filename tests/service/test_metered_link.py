"""The meter before real sockets: the limit is kept, the estimate is near what they carry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from neuroswarm.clock import SystemClock
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.metering.metered import MeteredRpc
from neuroswarm.metering.upload_limit import UploadLimit
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint, NodeId, PeerAddress

TOKEN = SwarmToken(bytes(range(32)))
FREE = Endpoint("127.0.0.1", 0)
LIMIT = 200_000.0
CHUNK = bytes(50_000)
NUM_CHUNKS = 40


@dataclass
class Open:
    """A gate that is never shut."""

    limit: UploadLimit
    is_silent: bool = False


def make_end(limit: UploadLimit) -> tuple[GrpcTransport, MeteredRpc]:
    transport = GrpcTransport(issue(TOKEN, NodeKey.generate()), FREE)
    return transport, MeteredRpc(transport, Open(limit))


async def give_chunks(_caller: NodeId, _request: bytes) -> AsyncIterator[bytes]:
    for _ in range(NUM_CHUNKS):
        yield CHUNK


async def take_note(_caller: NodeId, _request: bytes) -> bytes:
    return b"noted"


async def pass_time(clock: FakeClock, task: asyncio.Task[None]) -> None:
    """Let time pass whenever somebody waits for it, until a task is done."""
    while not task.done():
        if clock.num_sleepers:
            await clock.advance(0.01)
        else:
            await asyncio.sleep(0)


async def test_a_limited_upload_takes_its_bytes_over_the_limit():
    clock = FakeClock(monotonic_s=0)
    limit = UploadLimit(LIMIT, clock)
    giver_end, giver = make_end(limit)
    taker, _ = make_end(UploadLimit(None, clock))
    giver.serve_stream("Test/Chunks", give_chunks)
    sizes: list[int] = []

    async def take_all() -> None:
        async for message in taker.stream(giver_end.address, "Test/Chunks", b"x", timeout_s=300):
            sizes.append(len(message))  # noqa: PERF401  (the length is what matters)

    async with giver_end, taker, asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(take_all())
        await pass_time(clock, taking)
    assert sizes == [len(CHUNK)] * NUM_CHUNKS
    assert limit.num_bytes == NUM_CHUNKS * len(CHUNK)
    assert clock.monotonic() == pytest.approx((NUM_CHUNKS - 1) * len(CHUNK) / LIMIT, rel=0.05)
    assert limit.held_up_s == pytest.approx(clock.monotonic(), rel=0.05)


@dataclass
class Relay:
    """A TCP relay that counts what passes."""

    endpoint: Endpoint = FREE
    to_server: int = 0
    to_caller: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.to_server + self.to_caller


@asynccontextmanager
async def relay_to(target: Endpoint) -> AsyncIterator[Relay]:
    relay = Relay()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        while data := await reader.read(65536):
            setattr(relay, name, getattr(relay, name) + len(data))
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*target)
        relay.writers += [writer, there_writer]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump(reader, there_writer, "to_server"))
            tasks.create_task(pump(there_reader, writer, "to_caller"))

    server = await asyncio.start_server(connect, *FREE)
    relay.endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
    async with server:
        yield relay
        for writer in relay.writers:
            writer.close()


@dataclass
class Measured:
    """A metered caller whose calls pass through a relay."""

    rpc: MeteredRpc
    server: PeerAddress
    relay: Relay

    async def compare(self, num_calls: int, request: bytes) -> float:
        """The estimate for so many calls, in multiples of what TCP carried."""
        before, passed = self.rpc.moved(), self.relay.total
        for _ in range(num_calls):
            await self.rpc.call(self.server, "Test/Note", request, timeout_s=30)
        after = self.rpc.moved()
        moved = after.sent + after.received - before.sent - before.received
        return moved / (self.relay.total - passed)


@pytest.fixture
async def measured() -> AsyncIterator[Measured]:
    limit = UploadLimit(None, SystemClock())
    (caller, rpc), (server, answering) = make_end(limit), make_end(limit)
    answering.serve_unary("Test/Note", take_note)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        relay = await stack.enter_async_context(relay_to(server.endpoint))
        await stack.enter_async_context(caller)
        there = PeerAddress(server.address.node_id, relay.endpoint)
        await rpc.call(there, "Test/Note", b"", timeout_s=30)  # the handshake is estimated by time
        yield Measured(rpc, there, relay)


async def test_the_estimate_for_short_calls_is_not_below_what_tcp_carries(measured: Measured):
    """The packets' headers come on top of what TCP carries: 40 bytes of each packet."""
    assert 1.0 <= await measured.compare(200, bytes(300)) <= 2.2


async def test_the_estimate_for_long_calls_is_little_above_what_tcp_carries(measured: Measured):
    assert 1.03 <= await measured.compare(4, bytes(1_000_000)) <= 1.08
