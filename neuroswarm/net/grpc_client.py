"""Calling peers: one cached channel a peer, and gRPC's errors told as ours, here only.

Refuses to know what is called, and to call again: callers have other sources to turn to.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio

from neuroswarm.clock import Clock
from neuroswarm.errors import (
    BadSignature,
    MessageTooLarge,
    PeerError,
    PeerUnreachable,
    ProtocolViolation,
)
from neuroswarm.identity.answer_proof import make_nonce, verify_answer
from neuroswarm.identity.certificate import NodeCredentials, get_host_name
from neuroswarm.net.grpc_settings import (
    METHOD_PREFIX,
    NONCE_KEY,
    PROOF_KEY,
    CallBounds,
    channel_options,
)
from neuroswarm.net.occasional import Occasional
from neuroswarm.net.pipes import Door, PipeSockets
from neuroswarm.net.traffic import Traffic
from neuroswarm.values import NodeId, PeerAddress

logger = logging.getLogger(__name__)

_UNREACHABLE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}


class PeerChannel:
    """One channel with its multi-callables, which gRPC would register anew for every call."""

    def __init__(
        self,
        address: PeerAddress,
        credentials: grpc.ChannelCredentials,
        bounds: CallBounds,
        door: Door | None = None,
    ) -> None:
        """Connect at need, straight to the address, or through a door of this channel's own."""
        self.num_calls = 0
        """Calls in flight or waiting for their turn."""
        self.turns = asyncio.Semaphore(bounds.max_calls_per_peer)
        self.stream_turns = asyncio.Semaphore(bounds.max_streams_per_peer)
        self._channel = grpc.aio.secure_channel(
            str(address.endpoint) if door is None else door.target,
            credentials,
            options=channel_options(get_host_name(address.node_id), is_piped=door is not None),
        )
        self._door = door
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._stream: dict[str, grpc.aio.UnaryStreamMultiCallable[bytes, bytes]] = {}

    def get_unary(self, method: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        """What calls `method`."""
        if method not in self._unary:
            path = METHOD_PREFIX + method
            self._unary[method] = self._channel.unary_unary(path, None, None)
        return self._unary[method]

    def get_stream(self, method: str) -> grpc.aio.UnaryStreamMultiCallable[bytes, bytes]:
        """What calls `method` for a stream."""
        if method not in self._stream:
            path = METHOD_PREFIX + method
            self._stream[method] = self._channel.unary_stream(path, None, None)
        return self._stream[method]

    async def close(self) -> None:
        """Cancel what is in flight and disconnect."""
        await self._channel.close(None)
        if self._door is not None:
            self._door.close()


class CallClient:
    """Calls peers over channels that are opened at need, closed at need too."""

    def __init__(
        self,
        credentials: NodeCredentials,
        bounds: CallBounds,
        traffic: Traffic,
        sockets: PipeSockets,
        *,
        clock: Clock,
    ) -> None:
        self._me = credentials.node_id
        self._tls = grpc.ssl_channel_credentials(
            credentials.ca_pem, credentials.key_pem, credentials.certificate_pem
        )
        self._bounds = bounds
        self._traffic = traffic
        self._sockets = sockets
        self._channels: OrderedDict[tuple[PeerAddress, bool], PeerChannel] = OrderedDict()
        self._refusals = Occasional(clock)
        self._is_closed = False

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call and return the reply; errors as `transport.Rpc.call` has them."""
        async with self._channel_to(peer, timeout_s) as (channel, left_s):
            return await self._call(channel, peer, method, request, left_s)

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call over a channel of its own, which no other call gets to use."""
        channel = PeerChannel(peer, self._tls, self._bounds)
        try:
            return await self._call(channel, peer, method, request, timeout_s)
        finally:
            await channel.close()

    async def _call(
        self, channel: PeerChannel, peer: PeerAddress, method: str, request: bytes, left_s: float
    ) -> bytes:
        nonce = make_nonce()
        with self._translated(peer, method, nonce):
            call = channel.get_unary(method)(
                request, timeout=left_s, metadata=((NONCE_KEY, nonce),)
            )
            self._traffic.bytes_sent += len(request)
            reply = await call
            self._check_answer(await call.initial_metadata(), peer.node_id, nonce)
        self._traffic.bytes_received += len(reply)
        return reply

    async def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call and yield the messages; errors as `transport.Rpc.stream` has them."""
        nonce = make_nonce()
        async with self._channel_to(peer, timeout_s, is_stream=True) as (channel, left_s):
            call = channel.get_stream(method)(
                request, timeout=left_s, metadata=((NONCE_KEY, nonce),)
            )
            self._traffic.bytes_sent += len(request)
            try:
                with self._translated(peer, method, nonce):
                    metadata = await call.initial_metadata()
                is_checked = False
                is_over = False
                while not is_over:
                    with self._translated(peer, method, nonce):
                        message = await call.read()
                    if not is_checked:  # not before: a failed call has no metadata
                        self._check_answer(metadata, peer.node_id, nonce)
                        is_checked = True
                    is_over = not isinstance(message, bytes)  # gRPC's end of stream
                    if isinstance(message, bytes):
                        self._traffic.bytes_received += len(message)
                        yield message
            finally:
                call.cancel()

    async def close(self) -> None:
        """Close every channel; what is in flight ends with PeerUnreachable."""
        self._is_closed = True
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close()

    @asynccontextmanager
    async def _channel_to(
        self, peer: PeerAddress, timeout_s: float, *, is_stream: bool = False
    ) -> AsyncIterator[tuple[PeerChannel, float]]:
        """The peer's channel, in turn and kept from being evicted, and the seconds left then."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        place = peer, self._sockets.needs_pipe(peer.node_id)
        channel = self._channels.get(place)
        evicted = None
        if channel is None:
            evicted = self._make_room()
            door = self._sockets.open_door(peer.node_id) if place[1] else None
            channel = PeerChannel(peer, self._tls, self._bounds, door)
            self._channels[place] = channel
        self._channels.move_to_end(place)
        channel.num_calls += 1
        try:
            if evicted is not None:
                await evicted.close()
            async with AsyncExitStack() as turns:
                try:
                    async with asyncio.timeout_at(deadline):
                        if is_stream:
                            await turns.enter_async_context(channel.stream_turns)
                        await turns.enter_async_context(channel.turns)
                except TimeoutError as error:
                    raise PeerUnreachable(
                        f"{peer} unreachable: earlier calls to it take too long",
                        peer=peer.node_id,
                    ) from error
                if self._is_closed:
                    raise PeerUnreachable("this node is stopping", peer=peer.node_id)
                left_s = deadline - asyncio.get_running_loop().time()
                yield channel, min(left_s, self._bounds.max_call_s)
        finally:
            channel.num_calls -= 1

    def _make_room(self) -> PeerChannel | None:
        if len(self._channels) < self._bounds.max_channels:
            return None
        for place, channel in self._channels.items():
            if channel.num_calls == 0:
                return self._channels.pop(place)
        raise PeerUnreachable(f"all {self._bounds.max_channels} channels are in use")

    @contextmanager
    def _translated(self, peer: PeerAddress, method: str, nonce: bytes) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._translate(error, peer, method, nonce) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise PeerUnreachable("this node is stopping", peer=peer.node_id) from None
            raise

    def _translate(
        self, error: grpc.aio.AioRpcError, peer: PeerAddress, method: str, nonce: bytes
    ) -> PeerError:
        code, detail = error.code(), error.details() or ""
        if code in _UNREACHABLE:
            return self._describe_unreachable(peer, method, code, detail)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            if "larger than max" in detail:
                return MessageTooLarge(f"{peer}: answer of {method} too large", peer=peer.node_id)
            return PeerUnreachable(f"{peer} unreachable: busy", peer=peer.node_id)
        try:
            self._check_answer(error.initial_metadata(), peer.node_id, nonce)
        except PeerUnreachable as unproven:
            return unproven
        return ProtocolViolation(f"{peer} refused {method}: {detail}", peer=peer.node_id)

    def _describe_unreachable(
        self, peer: PeerAddress, method: str, code: grpc.StatusCode, detail: str
    ) -> PeerUnreachable:
        if "CERTIFICATE_VERIFY_FAILED" in detail or "CERTIFICATE_REQUIRED" in detail:
            if num_refusals := self._refusals.count():
                logger.warning(
                    "%s uses another swarm token than this node: call refused (%d in the last "
                    "minute); give all nodes of a swarm the same token",
                    peer.endpoint,
                    num_refusals,
                )
            reason = "it uses another swarm token"
        elif "Hostname Verification" in detail:
            reason = "another node has its address now"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            reason = f"no answer to {method} in time"
        else:
            reason = detail
        return PeerUnreachable(f"{peer} unreachable: {reason}", peer=peer.node_id)

    def _check_answer(self, metadata: Iterable[Any], expected: NodeId, nonce: bytes) -> None:
        proof = next((value for key, value in metadata if key == PROOF_KEY), b"")
        try:
            verify_answer(proof, self._me, nonce, expected=expected)
        except BadSignature as error:
            raise PeerUnreachable(
                f"{expected} unreachable: another member answered in its place", peer=expected
            ) from error
