"""What carries bytes between nodes, as protocols: authenticated calls and sealed datagrams.

`neuroswarm.net` implements them with gRPC and UDP, `neuroswarm.testing.MemoryNetwork` in memory.
Refuses to know what the bytes mean.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from neuroswarm.values import Endpoint, NodeId, PeerAddress

UnaryHandler = Callable[[NodeId, bytes], Awaitable[bytes]]
"""Answers one call of an authenticated member: (caller, request) -> reply."""

StreamHandler = Callable[[NodeId, bytes], AsyncIterator[bytes]]
"""Answers one call with a stream of messages: (caller, request) -> messages."""


class Admission(enum.Enum):
    """Whether a member's request is taken."""

    WELCOME = "welcome"
    BANNED = "banned"
    """Refused, as everything from it; it sees a `ProtocolViolation`."""
    OTHER_VERSION = "other version"
    """Refused for the protocol that it announces; it sees a `ProtocolViolation`."""
    TOO_MUCH = "too much"
    """Refused for now; it sees a `PeerUnreachable` that says busy."""


WRONG_VERSION = "the caller's protocol version is not spoken here (upgrade the older one)"
"""What a caller reads that was refused for it."""

Guard = Callable[[NodeId, int], Admission]
"""Judges a request before its handler sees it: (caller, bytes of the request) -> verdict."""

DatagramHandler = Callable[[bytes, Endpoint], None]
"""Takes one opened (unsealed, so authentic to the swarm) datagram and its source address."""


class Rpc(Protocol):
    """Calls between members whose identities are proven by their certificates.

    A handler's `PeerError` becomes a refusal that the caller sees as `ProtocolViolation`.
    """

    @property
    def bytes_sent(self) -> int:
        """Bytes of requests and replies sent so far, without the framing below."""
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes of requests and replies received so far, without the framing below."""
        ...

    def guard(self, guard: Guard) -> None:
        """Set who judges each request; before the transport starts. All are welcome without."""
        ...

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls of `method` (like "Gossip/Push"); before the transport starts."""
        ...

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls of `method` with a stream; before the transport starts."""
        ...

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer and return its reply.

        Raises:
            PeerUnreachable: no connection or no answer within `timeout_s`.
            ProtocolViolation: the peer refused the call.
        """
        ...

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Like `call`, over a connection of its own, straight to the endpoint; closed after it."""
        ...

    def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer and yield its messages; raises like `call`, `timeout_s` bounds the whole."""
        ...


class Pipe(Protocol):
    """Bytes to and from another node, in order, through a third one that need not be trusted."""

    async def read(self) -> bytes:
        """The next bytes; empty once the pipe is over. Cancellation loses nothing."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the other end is not ready for more.

        Raises:
            PeerUnreachable: the pipe is over.
        """
        ...

    def close(self) -> None:
        """End it, in both directions; what was written before still goes out."""
        ...


class Pipes(Protocol):
    """Knows which peers are called through pipes, and makes them."""

    def needs_pipe(self, peer: NodeId) -> bool:
        """Whether a peer is to be called through a pipe."""
        ...

    async def open(self, peer: NodeId) -> Pipe:
        """Make a pipe to a peer; PeerUnreachable if there is no way."""
        ...


class Datagrams(Protocol):
    """Sealed datagrams between holders of the swarm token; anything else is dropped unparsed."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of sealed datagrams sent so far."""
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes of datagrams received so far, dropped ones included."""
        ...

    @property
    def num_received(self) -> int:
        """Datagrams received so far, dropped ones included."""
        ...

    @property
    def num_dropped(self) -> int:
        """Datagrams that did not open under the swarm's key, or that the handler refused."""
        ...

    def on_datagram(self, handler: DatagramHandler) -> None:
        """Set who takes opened datagrams; before the transport starts."""
        ...

    def send(self, to: Endpoint, data: bytes) -> None:
        """Seal and send at most `limits.MAX_DATAGRAM_BYTES` bytes; loss is silent, as with UDP."""
        ...
