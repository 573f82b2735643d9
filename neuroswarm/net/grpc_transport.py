"""Calls between members over one gRPC server and mutual TLS under the swarm's authority.

gRPC's C core writes to standard error on its own; only GRPC_VERBOSITY=NONE in the environment,
set before grpc is imported, silences it. The command line does so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio

from neuroswarm.clock import Clock, SystemClock
from neuroswarm.errors import ConfigError, LifecycleError, PeerUnreachable
from neuroswarm.identity.certificate import NodeCredentials
from neuroswarm.net.grpc_client import CallClient
from neuroswarm.net.grpc_server import CallServer
from neuroswarm.net.grpc_settings import CallBounds, server_options
from neuroswarm.net.pipes import PipeSockets
from neuroswarm.net.traffic import Traffic
from neuroswarm.service import Service, State
from neuroswarm.transport import Guard, Pipe, Pipes, StreamHandler, UnaryHandler
from neuroswarm.values import Endpoint, PeerAddress
from neuroswarm.wire import limits

logger = logging.getLogger(__name__)

_STOP_GRACE_S = 0.5


class GrpcTransport(Service):
    """`transport.Rpc` over gRPC.

    Both ends of a call are proven: the caller by its certificate, the answering node by a
    signature (`identity.answer_proof`). Nothing of a stranger without the token is read.
    """

    name = "grpc"

    def __init__(
        self,
        credentials: NodeCredentials,
        listen: Endpoint,
        *,
        bounds: CallBounds | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare to answer at `listen`; port 0 takes a free one."""
        super().__init__()
        bounds = bounds or CallBounds()
        self._credentials = credentials
        self._listen = listen
        self._bounds = bounds
        self._traffic = Traffic()
        self._server = CallServer(credentials, bounds, self._traffic, self._report_bug)
        self._sockets = PipeSockets()
        self._client = CallClient(
            credentials, bounds, self._traffic, self._sockets, clock=clock or SystemClock()
        )
        self._bug: asyncio.Future[None] | None = None
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens, with the port that was bound; after `start`."""
        if self._endpoint is None:
            raise LifecycleError("grpc: has no endpoint before start")
        return self._endpoint

    @property
    def address(self) -> PeerAddress:
        """This node's id and endpoint; after `start`."""
        return PeerAddress(self._credentials.node_id, self.endpoint)

    @property
    def bytes_sent(self) -> int:
        """Bytes of requests and replies sent so far, without the framing below."""
        return self._traffic.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes of requests and replies received so far, without the framing below."""
        return self._traffic.bytes_received

    def guard(self, guard: Guard) -> None:
        """Set who judges each request, before `start`; all members are welcome without."""
        self._require_new()
        self._server.guard = guard

    def serve_unary(self, method: str, handler: UnaryHandler) -> None:
        """Answer calls of `method` (like "Gossip/Push"); before `start`."""
        self._require_new()
        self._server.add_unary(method, handler)

    def serve_stream(self, method: str, handler: StreamHandler) -> None:
        """Answer calls of `method` with a stream; before `start`."""
        self._require_new()
        self._server.add_stream(method, handler)

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes to the peers that are called through one; before `start`."""
        self._require_new()
        self._sockets.pipes = pipes

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe, like those that come straight."""
        self._sockets.accept(pipe)

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call a peer and return its reply.

        Raises:
            PeerUnreachable: no connection, or no answer of that very peer within `timeout_s`.
            ProtocolViolation: the peer refused the call.
            ValueError: the request is above `limits.MAX_MESSAGE_BYTES`.

        Cancellation: the call is cancelled at the peer too.
        """
        self._check_call(method, request)
        return await self._client.call(peer, method, request, timeout_s=timeout_s)

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Like `call`, over a connection of its own, straight to the endpoint; closed after it."""
        self._check_call(method, request)
        return await self._client.call_anew(peer, method, request, timeout_s=timeout_s)

    def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call a peer and yield its messages; raises like `call`, `timeout_s` bounds the whole.

        Cancellation: closing the iterator or its task cancels the call at the peer too.
        """
        self._check_call(method, request)
        return self._client.stream(peer, method, request, timeout_s=timeout_s)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._bug = asyncio.get_running_loop().create_future()
        await stack.enter_async_context(self._sockets)
        server = grpc.aio.server(
            handlers=(self._server,),
            options=server_options(self._bounds),
            maximum_concurrent_rpcs=2 * self._bounds.max_calls,
        )
        credentials = grpc.ssl_server_credentials(
            [(self._credentials.key_pem, self._credentials.certificate_pem)],
            self._credentials.ca_pem,
            require_client_auth=True,
        )
        try:
            port = server.add_secure_port(str(self._listen), credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on tcp {self._listen}: the port is in use or the address is not "
                "this machine's (choose another)"
            ) from error
        if self._sockets.own_path is not None:
            server.add_secure_port(f"unix:{self._sockets.own_path}", credentials)
        stack.push_async_callback(self._client.close)
        stack.push_async_callback(server.stop, _STOP_GRACE_S)
        await server.start()
        self._endpoint = Endpoint(self._listen.host, port)
        logger.debug("answering calls on %s", self._endpoint)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._raise_bug(), self._sockets.wait_closed())

    async def _raise_bug(self) -> None:
        assert self._bug is not None, "_open() made it"
        await self._bug

    def _report_bug(self, error: Exception) -> None:
        if self._bug is not None and not self._bug.done():
            self._bug.set_exception(error)

    def _require_new(self) -> None:
        if self.state is not State.NEW:
            raise LifecycleError("grpc: methods and guard are set before start")

    def _check_call(self, method: str, request: bytes) -> None:
        if self.state is State.NEW:
            raise LifecycleError("grpc: start it before calling")
        if self.state is not State.RUNNING:
            raise PeerUnreachable("this node is stopping")
        if len(request) > limits.MAX_MESSAGE_BYTES:
            raise ValueError(
                f"request of {method} too large: {len(request)} bytes "
                f"(limit {limits.MAX_MESSAGE_BYTES})"
            )
