"""Transports behind a meter: paced, counted, and shut while the node is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import pytest

from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.metering.framing import CALL_BYTES, DATAGRAM_BYTES, Moved
from neuroswarm.metering.metered import MeteredDatagrams, MeteredRpc
from neuroswarm.metering.upload_limit import UploadLimit
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.transport import Admission
from neuroswarm.values import Endpoint, NodeId

LIMIT = 100_000.0
LONG = bytes(50_000)


@dataclass
class Valve:
    """The gate of a meter."""

    limit: UploadLimit
    is_silent: bool = False


@dataclass
class Scene:
    """A metered node and a plain peer of it."""

    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    clock: FakeClock = field(default_factory=lambda: FakeClock(monotonic_s=0))
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.valve = Valve(UploadLimit(LIMIT, self.clock))
        self.inner = self.network.rpc(NodeId(b"m" * 20))
        self.peer: MemoryRpc = self.network.rpc(NodeId(b"p" * 20))
        self.rpc = MeteredRpc(self.inner, self.valve, unpaced=("Test/Unpaced",))
        for end in (self.rpc, self.peer):
            end.serve_unary("Test/Long", self.answer)
            end.serve_stream("Test/Stream", self.stream)
            end.serve_stream("Test/Unpaced", self.stream)

    async def answer(self, _caller: NodeId, _request: bytes) -> bytes:
        return LONG

    async def stream(self, _caller: NodeId, _request: bytes) -> AsyncIterator[bytes]:
        try:
            for _ in range(5):
                yield LONG
        finally:
            self.closed.append("stream")

    async def listen(self, method: str) -> list[float]:
        """When each message of a stream came to the peer."""
        stream = self.peer.stream(self.inner.address, method, b"x", timeout_s=100)
        return [self.clock.monotonic() async for _ in stream]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with scene.inner, scene.peer:
        yield scene


async def test_streams_of_answers_are_paced(scene: Scene):
    async with asyncio.TaskGroup() as tasks:
        times = tasks.create_task(scene.listen("Test/Stream"))
        await scene.clock.advance(60)
    assert times.result() == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert scene.valve.limit.num_bytes == 5 * len(LONG)


async def test_streams_whose_handlers_pace_themselves_are_not_paced_twice(scene: Scene):
    assert await scene.listen("Test/Unpaced") == [0.0] * 5


async def test_long_requests_and_replies_wait_for_their_turn(scene: Scene):
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(scene.rpc.call(scene.peer.address, "Test/Long", LONG, timeout_s=60))
            tasks.create_task(scene.peer.call(scene.inner.address, "Test/Long", b"", timeout_s=60))
        await scene.clock.advance(60)
    assert scene.valve.limit.num_bytes == 4 * len(LONG)
    assert scene.valve.limit.held_up_s == pytest.approx(0.5 + 1.0 + 1.5)


async def test_a_request_that_finds_no_room_in_time_is_as_if_the_peer_did_not_answer(
    scene: Scene,
):
    scene.valve.limit.note(10**9)
    with pytest.raises(PeerUnreachable, match="upload limit"):
        await scene.rpc.call(scene.peer.address, "Test/Long", LONG, timeout_s=0.01)
    assert scene.peer.bytes_received == 0


async def test_short_requests_never_wait(scene: Scene):
    scene.valve.limit.note(10**9)
    await scene.rpc.call(scene.peer.address, "Test/Long", b"short", timeout_s=5)


async def test_a_silent_node_calls_nobody(scene: Scene):
    scene.valve.is_silent = True
    with pytest.raises(PeerUnreachable, match="data cap"):
        await scene.rpc.call(scene.peer.address, "Test/Long", b"", timeout_s=5)
    with pytest.raises(PeerUnreachable, match="data cap"):
        scene.rpc.stream(scene.peer.address, "Test/Stream", b"x", timeout_s=5)
    assert scene.peer.bytes_received == 0


async def test_a_silent_node_answers_nobody():
    scene = Scene()
    scene.rpc.guard(lambda _caller, _num_bytes: Admission.WELCOME)
    async with scene.inner, scene.peer:
        await scene.peer.call(scene.inner.address, "Test/Long", b"", timeout_s=5)
        scene.valve.is_silent = True
        with pytest.raises(PeerUnreachable, match="busy"):
            await scene.peer.call(scene.inner.address, "Test/Long", b"", timeout_s=5)


async def listen_once(stream: AsyncIterator[bytes], valve: Valve) -> list[bytes]:
    """What comes of a stream if the node falls silent at its first message."""
    got = []
    with suppress(PeerError):
        async for message in stream:
            got.append(message)
            valve.is_silent = True
    valve.is_silent = False
    return got


async def test_streams_end_when_the_node_falls_silent(scene: Scene):
    scene.valve.limit.bytes_per_s = None
    answered = scene.peer.stream(scene.inner.address, "Test/Stream", b"x", timeout_s=5)
    assert await listen_once(answered, scene.valve) == [LONG]
    asked = scene.rpc.stream(scene.peer.address, "Test/Stream", b"x", timeout_s=5)
    assert await listen_once(asked, scene.valve) == [LONG]
    assert scene.closed == ["stream", "stream"]


async def test_closing_a_stream_closes_the_one_below(scene: Scene):
    stream = scene.rpc.stream(scene.peer.address, "Test/Stream", b"x", timeout_s=5)
    assert isinstance(stream, AsyncGenerator)
    async with aclosing(stream):
        assert await anext(stream) == LONG
        assert scene.closed == []
    assert scene.closed == ["stream"]


async def test_what_went_over_the_link_is_estimated_with_its_framing(scene: Scene):
    await scene.rpc.call(scene.peer.address, "Test/Long", b"q" * 100, timeout_s=5)
    assert scene.rpc.moved() == Moved(
        sent=105 + CALL_BYTES, received=int(1.05 * len(LONG)) + CALL_BYTES
    )


async def test_datagrams_are_counted_and_lost_while_the_node_is_silent():
    network, valve = MemoryNetwork(), Valve(UploadLimit(None, FakeClock()))
    inner, peer = network.datagrams(), network.datagrams()
    mine, taken = MeteredDatagrams(inner, valve), list[bytes]()
    arrived = asyncio.Event()

    def take(data: bytes, _source: Endpoint) -> None:
        taken.append(data)
        arrived.set()

    mine.on_datagram(take)
    async with inner, peer:
        mine.send(peer.endpoint, b"one")
        peer.send(inner.endpoint, b"answer")
        valve.is_silent = True
        mine.send(peer.endpoint, b"two")
        await arrived.wait()
    assert peer.num_received == 1
    assert taken == [b"answer"]
    assert mine.moved() == Moved(
        inner.bytes_sent + DATAGRAM_BYTES, inner.bytes_received + DATAGRAM_BYTES
    )
    assert (mine.num_received, mine.num_dropped) == (1, 0)
