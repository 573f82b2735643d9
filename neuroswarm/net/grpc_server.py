"""Answering calls: who calls is settled, and counted against bounds, before a handler runs.

Refuses to know what is asked; handlers take and return bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import NoReturn

import grpc
import grpc.aio

from neuroswarm.errors import BadSignature, PeerError
from neuroswarm.identity.answer_proof import NONCE_BYTES, prove_answer
from neuroswarm.identity.certificate import NodeCredentials, read_identity
from neuroswarm.net.grpc_settings import METHOD_PREFIX, NONCE_KEY, PROOF_KEY, CallBounds
from neuroswarm.net.traffic import Traffic
from neuroswarm.transport import (
    WRONG_VERSION,
    Admission,
    Guard,
    StreamHandler,
    UnaryHandler,
)
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

_MAX_DETAIL_CHARS = 300
_ROUNDING_S = 10.0
"""What a caller's deadline may be above the bound by rounding, and by clocks that differ."""

_END_S = 1.0
"""Seconds to tell a caller why its call ends; then it ends without a word."""

_FEW_CALLS = 2
_SHARE_FOR_ALL = 0.75

Context = grpc.aio.ServicerContext[bytes, bytes]


class CallServer(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Hands calls to the handlers of their methods.

    A handler's `PeerError` refuses the call. Anything else that it raises is a bug: it goes to
    `on_bug`, and the caller is told no more than that.
    """

    def __init__(
        self,
        credentials: NodeCredentials,
        bounds: CallBounds,
        traffic: Traffic,
        on_bug: Callable[[Exception], None],
    ) -> None:
        self.guard: Guard = _welcome_all
        self._credentials = credentials
        self._bounds = bounds
        self._traffic = traffic
        self._on_bug = on_bug
        self._methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        self._in_flight: Counter[NodeId] = Counter()
        self._streams: Counter[NodeId] = Counter()
        self._identify = lru_cache(maxsize=1024)(read_identity)

    def add_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls of `method` with what `handler` returns."""

        async def answer(request: bytes, context: Context) -> bytes:
            async with self._admitted(context, request) as caller:
                async with _at_most(self._bounds.max_handling_s, f"no answer of {method}"):
                    reply = await handler(caller, request)
                self._count_sent(method, reply)
                return reply

        self._add(method, grpc.unary_unary_rpc_method_handler(answer))

    def add_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls of `method` with every message that `handler` yields."""

        async def answer(request: bytes, context: Context) -> None:
            async with (
                self._admitted(context, request, is_stream=True) as caller,
                aclosing(_as_generator(handler(caller, request))) as messages,
            ):
                async for message in messages:
                    self._count_sent(method, message)
                    limit_s = len(message) / self._bounds.least_bytes_per_s
                    limit_s = max(self._bounds.max_write_s, limit_s)
                    async with _at_most(limit_s, f"messages of {method} were not taken"):
                        await context.write(message)

        self._add(method, grpc.unary_stream_rpc_method_handler(answer))

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler of a call; one that refuses if the method is unknown."""
        found = self._methods.get(handler_call_details.method)
        return found or grpc.unary_unary_rpc_method_handler(self._refuse_unknown)

    def _add(self, method: str, handler: grpc.RpcMethodHandler[bytes, bytes]) -> None:
        path = METHOD_PREFIX + method
        if path in self._methods:
            raise ValueError(f"served twice: {method}")
        self._methods[path] = handler

    async def _refuse_unknown(self, request: bytes, context: Context) -> bytes:
        async with self._admitted(context, request):
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")

    @asynccontextmanager
    async def _admitted(
        self, context: Context, request: bytes, *, is_stream: bool = False
    ) -> AsyncIterator[NodeId]:
        """Settle the caller, prove who answers, keep the bounds, translate what goes wrong."""
        self._traffic.bytes_received += len(request)
        caller = await self._settle_caller(context)
        await self._ask_guard(caller, request, context)
        remaining_s = context.time_remaining()
        if remaining_s is None or remaining_s > self._bounds.max_call_s + _ROUNDING_S:
            detail = f"call without a deadline within {self._bounds.max_call_s:.0f} s"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, detail)
        if not self._has_room(caller, is_stream):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy: too many calls at once")
        self._in_flight[caller] += 1
        self._streams[caller] += is_stream
        ending: tuple[grpc.StatusCode, str] | None = None
        try:
            yield caller
        except _TooSlow as error:
            ending = grpc.StatusCode.DEADLINE_EXCEEDED, str(error)
        except PeerError as error:
            ending = grpc.StatusCode.FAILED_PRECONDITION, str(error)[:_MAX_DETAIL_CHARS]
        except grpc.aio.BaseError:
            raise  # the call was refused, or its caller has gone away
        except Exception as error:  # noqa: BLE001  (to on_bug, which fails the service)
            self._on_bug(error)
            ending = grpc.StatusCode.INTERNAL, "internal error"
        finally:
            self._in_flight[caller] -= 1
            self._streams[caller] -= is_stream
            for counter in (self._in_flight, self._streams):
                if not counter[caller]:
                    del counter[caller]
        if ending is not None:  # its room is free by now, however long this takes
            await _end(context, *ending)

    def _has_room(self, caller: NodeId, is_stream: bool) -> bool:
        """Whether one more call of a caller is answered; some room is kept for the modest."""
        own, bounds = self._in_flight[caller], self._bounds
        if own >= bounds.max_calls_per_caller:
            return False
        if is_stream and self._streams[caller] >= bounds.max_streams_per_caller:
            return False
        share = 1.0 if own < _FEW_CALLS else _SHARE_FOR_ALL
        return self._in_flight.total() < share * bounds.max_calls

    async def _settle_caller(self, context: Context) -> NodeId:
        certificates = tuple(context.auth_context().get("x509_pem_cert", ()))
        try:
            caller = self._identify(certificates[0] if certificates else b"")
        except BadSignature as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        return caller

    async def _ask_guard(self, caller: NodeId, request: bytes, context: Context) -> None:
        admission = self.guard(caller, len(request))
        if admission is Admission.TOO_MUCH:  # before the proof is signed, which costs more
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls or bytes")
        await self._prove(caller, context)
        if admission is Admission.BANNED:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "banned for its conduct")
        if admission is Admission.OTHER_VERSION:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, WRONG_VERSION)

    async def _prove(self, caller: NodeId, context: Context) -> None:
        nonce = _find_metadata(context, NONCE_KEY)
        if len(nonce) != NONCE_BYTES:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "call without a nonce")
        proof = prove_answer(self._credentials.node_key, caller, nonce)
        await context.send_initial_metadata(((PROOF_KEY, proof),))

    def _count_sent(self, method: str, message: bytes) -> None:
        if len(message) > limits.MAX_MESSAGE_BYTES:
            raise ValueError(
                f"answer of {method} too large: {len(message)} bytes "
                f"(limit {limits.MAX_MESSAGE_BYTES})"
            )
        self._traffic.bytes_sent += len(message)


def _welcome_all(_caller: NodeId, _num_bytes: int) -> Admission:
    return Admission.WELCOME


class _TooSlow(PeerError):
    """A call took too long, by its handler's or its caller's fault."""


@asynccontextmanager
async def _at_most(limit_s: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # a handler's own
        raise _TooSlow(f"{what} within {limit_s:.0f} s") from None


async def _end(context: Context, code: grpc.StatusCode, detail: str) -> NoReturn:
    """Refuse a call; one whose caller takes nothing, not even that, is let go of."""
    try:
        async with asyncio.timeout(_END_S):
            await context.abort(code, detail)
    except (TimeoutError, grpc.aio.InternalError):
        raise asyncio.CancelledError from None


def _find_metadata(context: Context, key: str) -> bytes:
    for name, value in context.invocation_metadata() or ():
        if name == key and isinstance(value, bytes):
            return value
    return b""


async def _as_generator(messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Iterate, and close a generator when the call ends, however it ends."""
    try:
        async for message in messages:
            yield message
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()
