"""A node's link, made as slow as a benchmark wants it: bytes received wait for their turn.

All that a node is told passes through one bucket, whoever sends it. What gRPC has buffered before
is the only thing that comes faster. Knows nothing of what is carried.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from neuroswarm.clock import Clock
from neuroswarm.node.carriers import Carriers, WrappedCarriers
from neuroswarm.transport import Rpc, UnaryHandler
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wrapping import WrappedRpc


class LimitedRpc(WrappedRpc):
    """`transport.Rpc` whose answers and requests come in at a bounded rate."""

    def __init__(self, inner: Rpc, bytes_per_s: float, clock: Clock) -> None:
        super().__init__(inner)
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")
        self._clock = clock

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls whose requests have waited for their turn."""

        async def handle(caller: NodeId, request: bytes) -> bytes:
            await self._wait(request)
            return await handler(caller, request)

        self.inner.serve_unary(method, handle)

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer; its reply waits for its turn."""
        reply = await self.inner.call(peer, method, request, timeout_s=timeout_s)
        await self._wait(reply)
        return reply

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer over a connection of its own; its reply waits for its turn."""
        reply = await self.inner.call_anew(peer, method, request, timeout_s=timeout_s)
        await self._wait(reply)
        return reply

    async def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer; each message waits for its turn."""
        messages = self.inner.stream(peer, method, request, timeout_s=timeout_s)
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


class LimitedCarriers(WrappedCarriers):
    """`Carriers` with a slow link for calls; datagrams are few and small.

    What comes through pipes is not slowed down.
    """

    def __init__(self, inner: Carriers, bytes_per_s: float, clock: Clock) -> None:
        super().__init__(inner, rpc=LimitedRpc(inner.rpc, bytes_per_s, clock))
