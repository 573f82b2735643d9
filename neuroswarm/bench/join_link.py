"""A node's link, made as slow as a benchmark wants it: bytes received wait for their turn.

All that a node is told passes through one bucket, whoever sends it. What gRPC has buffered before
is the only thing that comes faster. Knows nothing of what is carried.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from neuroswarm.clock import Clock
from neuroswarm.node.carriers import Carriers
from neuroswarm.transport import Datagrams, Guard, Pipe, Pipes, Rpc, StreamHandler, UnaryHandler
from neuroswarm.values import Endpoint, NodeId, PeerAddress


class LimitedRpc:
    """`transport.Rpc` whose answers and requests come in at a bounded rate."""

    def __init__(self, inner: Rpc, bytes_per_s: float, clock: Clock) -> None:
        self._inner = inner
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")
        self._clock = clock

    @property
    def bytes_sent(self) -> int:
        """As the inner one counts."""
        return self._inner.bytes_sent

    @property
    def bytes_received(self) -> int:
        """As the inner one counts."""
        return self._inner.bytes_received

    def guard(self, guard: Guard) -> None:
        """Set who judges each request."""
        self._inner.guard(guard)

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls whose requests have waited for their turn."""

        async def handle(caller: NodeId, request: bytes) -> bytes:
            await self._wait(request)
            return await handler(caller, request)

        self._inner.serve_unary(method, handle)

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls with a stream."""
        self._inner.serve_stream(method, handler)

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer; its reply waits for its turn."""
        reply = await self._inner.call(peer, method, request, timeout_s=timeout_s)
        await self._wait(reply)
        return reply

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer over a connection of its own; its reply waits for its turn."""
        reply = await self._inner.call_anew(peer, method, request, timeout_s=timeout_s)
        await self._wait(reply)
        return reply

    async def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer; each message waits for its turn."""
        messages = self._inner.stream(peer, method, request, timeout_s=timeout_s)
        try:
            async for message in messages:
                await self._wait(message)
                yield message
        finally:
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()

    async def _wait(self, message: bytes) -> None:
        now = self._clock.monotonic()
        self._free_at = max(now, self._free_at) + len(message) / self._bytes_per_s
        await self._clock.sleep(self._free_at - now)  # until the whole of it has come


class LimitedCarriers:
    """`Carriers` with a slow link for calls; datagrams are few and small."""

    def __init__(self, inner: Carriers, bytes_per_s: float, clock: Clock) -> None:
        self._inner = inner
        self.rpc: Rpc = LimitedRpc(inner.rpc, bytes_per_s, clock)

    @property
    def datagrams(self) -> Datagrams:
        """The inner ones."""
        return self._inner.datagrams

    @property
    def dht_datagrams(self) -> Datagrams:
        """The inner ones."""
        return self._inner.dht_datagrams

    @property
    def dht_endpoint(self) -> Endpoint:
        """Where the DHT's datagrams are taken."""
        return self._inner.dht_endpoint

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where calls are answered."""
        return self._inner.grpc_endpoint

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where datagrams are taken."""
        return self._inner.heartbeat_endpoint

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes; what comes through them is not slowed down."""
        self._inner.use_pipes(pipes)

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        self._inner.accept(pipe)

    async def start(self) -> None:
        """Bind."""
        await self._inner.start()

    async def stop(self) -> None:
        """Let go of everything."""
        await self._inner.stop()

    async def wait_closed(self) -> None:
        """Wait for the end."""
        await self._inner.wait_closed()
