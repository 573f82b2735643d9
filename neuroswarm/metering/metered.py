"""A node's transports behind its meter: messages counted, long ones paced, none while silent.

Refuses to know what is carried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from typing import Protocol

from neuroswarm.errors import PeerUnreachable
from neuroswarm.metering.framing import (
    HANDSHAKE_BYTES,
    Moved,
    estimate_calls,
    estimate_datagrams,
)
from neuroswarm.transport import Admission, Datagrams, Guard, Rpc, StreamHandler, UnaryHandler
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wrapping import WrappedDatagrams, WrappedRpc


class Pacing(Protocol):
    """Lets messages pass at a rate."""

    async def take(self, num_bytes: int) -> float:
        """Wait until a message of so many bytes may go; returns for how many seconds."""
        ...


class Gate(Protocol):
    """Says when nothing may be sent."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing may be sent."""
        ...

    @property
    def limit(self) -> Pacing:
        """Paces what is sent."""
        ...


class MeteredRpc(WrappedRpc):
    """`transport.Rpc` over another one, counted and paced."""

    def __init__(self, rpc: Rpc, gate: Gate, *, unpaced: Collection[str] = ()) -> None:
        """Put a meter before a transport.

        Args:
            rpc: Carries.
            gate: Says what may go.
            unpaced: Streams whose handlers pace themselves.
        """
        super().__init__(rpc)
        self._gate = gate
        self._unpaced = frozenset(unpaced)
        self._num_sent = 0
        self._num_received = 0
        self._num_handshakes = 0

    def moved(self) -> Moved:
        """Bytes on the link since the start, by estimate."""
        handshakes = HANDSHAKE_BYTES * self._num_handshakes
        return Moved(
            handshakes + estimate_calls(self.inner.bytes_sent, self._num_sent),
            handshakes + estimate_calls(self.inner.bytes_received, self._num_received),
        )

    def guard(self, guard: Guard) -> None:
        """Set who judges each request; while the node is silent none is welcome."""

        def judge(caller: NodeId, num_bytes: int) -> Admission:
            self._num_received += 1
            return Admission.TOO_MUCH if self._gate.is_silent else guard(caller, num_bytes)

        self.inner.guard(judge)

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls; long replies wait for their turn."""

        async def answer(caller: NodeId, request: bytes) -> bytes:
            reply = await handler(caller, request)
            self._num_sent += 1
            await self._gate.limit.take(len(reply))
            return reply

        self.inner.serve_unary(method, answer)

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls with a stream; it ends when the node falls silent."""
        is_paced = method not in self._unpaced

        async def answer(caller: NodeId, request: bytes) -> AsyncIterator[bytes]:
            async with aclosing(_closable(handler(caller, request))) as messages:
                async for message in messages:
                    self._require_heard()
                    self._num_sent += 1
                    if is_paced:
                        await self._gate.limit.take(len(message))
                    yield message

        self.inner.serve_stream(method, answer)

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer; a long request waits for its turn, at most `timeout_s` more.

        Raises:
            PeerUnreachable: besides, if nothing may be sent now.
        """
        await self._wait_for_turn(method, request, timeout_s)
        reply = await self.inner.call(peer, method, request, timeout_s=timeout_s)
        self._num_received += 1
        return reply

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Like `call`, over a connection of its own."""
        await self._wait_for_turn(method, request, timeout_s)
        self._num_handshakes += 1
        reply = await self.inner.call_anew(peer, method, request, timeout_s=timeout_s)
        self._num_received += 1
        return reply

    async def _wait_for_turn(self, method: str, request: bytes, timeout_s: float) -> None:
        self._require_heard()
        try:
            async with asyncio.timeout(timeout_s) as patience:
                await self._gate.limit.take(len(request))
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise PeerUnreachable(  # of no peer: it is this node that is slow
                f"{len(request)} bytes of {method} found no room in this node's upload limit "
                f"within {timeout_s:g} s"
            ) from error
        self._num_sent += 1

    def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer and yield its messages, which end when the node falls silent.

        Requests for streams are small: they never wait.
        """
        self._require_heard()
        self._num_sent += 1
        return self._listen(self.inner.stream(peer, method, request, timeout_s=timeout_s))

    async def _listen(self, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async with aclosing(_closable(stream)) as messages:
            async for message in messages:
                self._num_received += 1
                yield message
                self._require_heard()

    def _require_heard(self) -> None:
        if self._gate.is_silent:
            raise PeerUnreachable("this node's data cap is used up")


class MeteredDatagrams(WrappedDatagrams):
    """`transport.Datagrams` over another one; nothing is sent while the node is silent."""

    def __init__(self, datagrams: Datagrams, gate: Gate) -> None:
        super().__init__(datagrams)
        self._gate = gate
        self._num_sent = 0

    def moved(self) -> Moved:
        """Bytes on the link since the start, by estimate."""
        return Moved(
            estimate_datagrams(self.bytes_sent, self._num_sent),
            estimate_datagrams(self.bytes_received, self.num_received),
        )

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send a datagram; lost while the node is silent."""
        if not self._gate.is_silent:
            self._num_sent += 1
            super().send(to, data)


def _closable(messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The messages as a generator, which closes theirs when it is closed."""
    if isinstance(messages, AsyncGenerator):
        return messages
    return _iterate(messages)


async def _iterate(messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for message in messages:
        yield message
