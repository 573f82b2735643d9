"""One node's end of `MemoryNetwork` for calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from neuroswarm.errors import LifecycleError, PeerError, PeerUnreachable, ProtocolViolation
from neuroswarm.service import Service, State
from neuroswarm.testing.faults import Passage
from neuroswarm.transport import (
    WRONG_VERSION,
    Admission,
    Guard,
    StreamHandler,
    UnaryHandler,
)
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire import limits

if TYPE_CHECKING:
    from neuroswarm.testing.memory_network import MemoryNetwork

H = TypeVar("H")


class MemoryRpc(Service):
    """`transport.Rpc` in memory; made by `MemoryNetwork.rpc`.

    A handler runs within its caller's task. What it raises besides `PeerError` is a bug and
    reaches the caller as it is, so that tests are loud about it.
    """

    name = "rpc"

    def __init__(
        self, network: MemoryNetwork, node_id: NodeId, endpoint: Endpoint, is_anywhere: bool
    ) -> None:
        super().__init__()
        self.address = PeerAddress(node_id, endpoint)
        self.bytes_sent = 0
        self.bytes_received = 0
        self._network = network
        self._is_anywhere = is_anywhere
        self._guard: Guard | None = None
        self._unary: dict[str, UnaryHandler] = {}
        self._stream: dict[str, StreamHandler] = {}
        self._in_flight: set[asyncio.Timeout] = set()

    @property
    def endpoint(self) -> Endpoint:
        """Where it takes calls."""
        return self.address.endpoint

    def guard(self, guard: Guard) -> None:
        """Set who judges each request; before `start`."""
        if self.state is not State.NEW:
            raise LifecycleError("rpc: the guard is set before start")
        self._guard = guard

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls of `method`; before `start`."""
        self._require_new(method)
        self._unary[method] = handler

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls of `method` with a stream; before `start`."""
        self._require_new(method)
        self._stream[method] = handler

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer; errors as `transport.Rpc.call` has them. A lost message fails at once."""
        self._check_call(method, request)
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with self._until(deadline, peer) as target:
            handler = await self._bring(target, method, request, target._unary)
            with _refusals(target.address, method):
                reply = await handler(self.address.node_id, request)
            await self._take(target, method, reply)
            return reply

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Like `call`: there are no connections here."""
        return await self.call(peer, method, request, timeout_s=timeout_s)

    def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer and yield its messages; errors as `call`."""
        self._check_call(method, request)
        deadline = asyncio.get_running_loop().time() + timeout_s
        return self._iterate(peer, method, request, deadline)

    def cut_off(self) -> None:
        """Fail every call in flight from and to this end now."""
        for timeout in self._in_flight:
            timeout.reschedule(asyncio.get_running_loop().time())

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self.cut_off)

    async def _iterate(
        self, peer: PeerAddress, method: str, request: bytes, deadline: float
    ) -> AsyncIterator[bytes]:
        async with self._until(deadline, peer) as target:
            handler = await self._bring(target, method, request, target._stream)
        messages = handler(self.address.node_id, request)
        try:
            while True:
                async with self._until(deadline, peer) as now:
                    if now is not target:
                        raise PeerUnreachable(f"{peer} restarted", peer=peer.node_id)
                    with _refusals(target.address, method):
                        message = await anext(messages, None)
                    if message is None:
                        return
                    await self._take(target, method, message)
                yield message
        finally:
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()

    @asynccontextmanager
    async def _until(self, deadline: float, peer: PeerAddress) -> AsyncIterator[MemoryRpc]:
        """Find the peer, and let deadline, `kill` and `stop` of both ends interrupt the block."""
        target = self._find(peer)
        try:
            async with asyncio.timeout_at(deadline) as timeout:
                self._in_flight.add(timeout)
                target._in_flight.add(timeout)
                try:
                    yield target
                finally:
                    self._in_flight.discard(timeout)
                    target._in_flight.discard(timeout)
        except TimeoutError as error:
            if not timeout.expired():
                raise  # a handler's own
            raise PeerUnreachable(f"{peer} unreachable: no answer", peer=peer.node_id) from error

    def _find(self, peer: PeerAddress) -> MemoryRpc:
        me = self.address
        if self._network.find_rpc(me.node_id, me.endpoint) is not self:
            raise PeerUnreachable("this node was taken off the network")
        target = self._network.find_rpc(peer.node_id, peer.endpoint)
        if target is None or target.state is not State.RUNNING:
            raise PeerUnreachable(f"{peer} unreachable: nobody there", peer=peer.node_id)
        if not target._is_anywhere and target.endpoint != peer.endpoint:
            raise PeerUnreachable(
                f"{peer} unreachable: it is at {target.endpoint} now", peer=peer.node_id
            )
        return target

    async def _bring(
        self, target: MemoryRpc, method: str, request: bytes, handlers: dict[str, H]
    ) -> H:
        """Bring the request to the peer; return the handler there."""
        self.bytes_sent += len(request)
        passage = Passage(self.address.node_id, target.address.node_id, method, request)
        if not await self._network.carry(passage):
            raise _lost(target.address, method)
        target.bytes_received += len(request)
        target._judge(self.address.node_id, request)
        if method not in handlers:
            raise ProtocolViolation(
                f"{target.address} refused {method}: unknown method", peer=target.address.node_id
            )
        return handlers[method]

    def _judge(self, caller: NodeId, request: bytes) -> None:
        """Refuse, in the words that the caller reads, what the guard does not welcome."""
        admission = self._guard and self._guard(caller, len(request))
        me = self.address
        if admission is Admission.TOO_MUCH:
            raise PeerUnreachable(f"{me} unreachable: busy", peer=me.node_id)
        if admission is Admission.BANNED:
            raise ProtocolViolation(f"{me} refused: banned for its conduct", peer=me.node_id)
        if admission is Admission.OTHER_VERSION:
            raise ProtocolViolation(f"{me} refused: {WRONG_VERSION}", peer=me.node_id)

    async def _take(self, target: MemoryRpc, method: str, reply: bytes) -> None:
        """Bring one message of the answer back."""
        if len(reply) > limits.MAX_MESSAGE_BYTES:
            raise ValueError(f"answer of {method} too large: {len(reply)} bytes")
        target.bytes_sent += len(reply)
        passage = Passage(target.address.node_id, self.address.node_id, method, reply, True)
        if not await self._network.carry(passage):
            raise _lost(target.address, method)
        self.bytes_received += len(reply)

    def _require_new(self, method: str) -> None:
        if self.state is not State.NEW:
            raise LifecycleError("rpc: methods are added before start")
        if method in self._unary or method in self._stream:
            raise ValueError(f"served twice: {method}")

    def _check_call(self, method: str, request: bytes) -> None:
        if self.state is State.NEW:
            raise LifecycleError("rpc: start it before calling")
        if self.state is not State.RUNNING:
            raise PeerUnreachable("this node is stopping")
        if len(request) > limits.MAX_MESSAGE_BYTES:
            raise ValueError(
                f"request of {method} too large: {len(request)} bytes "
                f"(limit {limits.MAX_MESSAGE_BYTES})"
            )


@contextmanager
def _refusals(peer: PeerAddress, method: str) -> Iterator[None]:
    try:
        yield
    except PeerError as error:
        raise ProtocolViolation(f"{peer} refused {method}: {error}", peer=peer.node_id) from error


def _lost(peer: PeerAddress, method: str) -> PeerUnreachable:
    return PeerUnreachable(f"{peer} unreachable: {method} was lost", peer=peer.node_id)
