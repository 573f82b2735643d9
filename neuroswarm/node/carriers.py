"""What carries a node's bytes: gRPC and UDP, or anything with the same faces.

Knows nothing of what is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol

from neuroswarm.clock import SystemClock
from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.certificate import issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.net.exhaustion import quiet_accepting
from neuroswarm.net.grpc_settings import CallBounds
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.service import Service
from neuroswarm.transport import Datagrams, Pipe, Pipes, Rpc
from neuroswarm.values import Endpoint


class Carriers(Protocol):
    """A node's two transports, started and stopped together."""

    @property
    def rpc(self) -> Rpc:
        """Calls between members."""
        ...

    @property
    def datagrams(self) -> Datagrams:
        """Sealed datagrams between members."""
        ...

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where calls are answered; once started."""
        ...

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where datagrams are taken; once started."""
        ...

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes to the peers that are called through one; before `start`."""
        ...

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        ...

    async def start(self) -> None:
        """Bind; ConfigError names a port that is taken."""
        ...

    async def stop(self) -> None:
        """Let go of everything."""
        ...

    async def wait_closed(self) -> None:
        """Wait for the end; raise what made a transport fail."""
        ...


MakeCarriers = Callable[[NodeKey, TokenRing, SwarmNodeConfig], Carriers]


class NetworkCarriers(Service):
    """gRPC with mutual TLS and sealed UDP."""

    name = "carriers"

    def __init__(self, key: NodeKey, tokens: TokenRing, config: SwarmNodeConfig) -> None:
        super().__init__()
        network = config.network
        self.rpc = GrpcTransport(
            issue(tokens.primary, key, tokens.accepted),
            Endpoint(network.host, network.bound_grpc_port),
            bounds=CallBounds(max_calls=network.max_concurrent_rpcs),
        )
        self.datagrams = UdpTransport(tokens.sealer, Endpoint(network.host, config.heartbeat.port))

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where calls are answered; once started."""
        return self.rpc.endpoint

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where datagrams are taken; once started."""
        return self.datagrams.endpoint

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes to the peers that are called through one; before `start`."""
        self.rpc.use_pipes(pipes)

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        self.rpc.accept(pipe)

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.enter_context(quiet_accepting(SystemClock()))
        await stack.enter_async_context(self.datagrams)
        await stack.enter_async_context(self.rpc)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self.datagrams.wait_closed(), self.rpc.wait_closed())
