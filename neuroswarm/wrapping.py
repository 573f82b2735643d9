"""Transports around other ones: all is handed on, for those that change a part of it.

A meter, a slow link and a bad network are such; what a transport gets to offer besides reaches all
of them here. Refuses to change anything itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from neuroswarm.transport import DatagramHandler, Datagrams, Guard, Rpc, StreamHandler, UnaryHandler
from neuroswarm.values import Endpoint, PeerAddress


class WrappedRpc:
    """`transport.Rpc` over another one."""

    def __init__(self, inner: Rpc) -> None:
        self.inner = inner

    @property
    def bytes_sent(self) -> int:
        """As the inner one counts."""
        return self.inner.bytes_sent

    @property
    def bytes_received(self) -> int:
        """As the inner one counts."""
        return self.inner.bytes_received

    def guard(self, guard: Guard) -> None:
        """Set who judges each request."""
        self.inner.guard(guard)

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls."""
        self.inner.serve_unary(method, handler)

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls with a stream."""
        self.inner.serve_stream(method, handler)

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer."""
        return await self.inner.call(peer, method, request, timeout_s=timeout_s)

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer over a connection of its own."""
        return await self.inner.call_anew(peer, method, request, timeout_s=timeout_s)

    def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer and yield its messages."""
        return self.inner.stream(peer, method, request, timeout_s=timeout_s)


class WrappedDatagrams:
    """`transport.Datagrams` over another one."""

    def __init__(self, inner: Datagrams) -> None:
        self.inner = inner

    @property
    def bytes_sent(self) -> int:
        """As the inner one counts."""
        return self.inner.bytes_sent

    @property
    def bytes_received(self) -> int:
        """As the inner one counts."""
        return self.inner.bytes_received

    @property
    def num_received(self) -> int:
        """As the inner one counts."""
        return self.inner.num_received

    @property
    def num_dropped(self) -> int:
        """As the inner one counts."""
        return self.inner.num_dropped

    def on_datagram(self, handler: DatagramHandler) -> None:
        """Set who takes opened datagrams; before the transport starts."""
        self.inner.on_datagram(handler)

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send a datagram."""
        self.inner.send(to, data)
