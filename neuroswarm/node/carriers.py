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
from neuroswarm.net.datagram import DHT_CONTEXT, UdpTransport
from neuroswarm.net.exhaustion import quiet_accepting
from neuroswarm.net.grpc_settings import CallBounds
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.service import Service
from neuroswarm.transport import Datagrams, Pipe, Pipes, Rpc
from neuroswarm.values import Endpoint


class Carriers(Protocol):
    """A node's transports, started and stopped together."""

    @property
    def rpc(self) -> Rpc:
        """Calls between members."""
        ...

    @property
    def datagrams(self) -> Datagrams:
        """Sealed datagrams between members."""
        ...

    @property
    def dht_datagrams(self) -> Datagrams:
        """The DHT's sealed datagrams between members."""
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

    @property
    def dht_endpoint(self) -> Endpoint:
        """Where the DHT's datagrams are taken, once started; port 0 if they are not."""
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


class WrappedCarriers:
    """Carriers around other ones: all is handed on, but for the transports that are given."""

    def __init__(
        self,
        inner: Carriers,
        *,
        rpc: Rpc | None = None,
        datagrams: Datagrams | None = None,
        dht_datagrams: Datagrams | None = None,
    ) -> None:
        """Take the transports of `inner` where None is given."""
        self._inner = inner
        self.rpc: Rpc = inner.rpc if rpc is None else rpc
        self.datagrams: Datagrams = inner.datagrams if datagrams is None else datagrams
        self.dht_datagrams: Datagrams = (
            inner.dht_datagrams if dht_datagrams is None else dht_datagrams
        )

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where calls are answered; once started."""
        return self._inner.grpc_endpoint

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where datagrams are taken; once started."""
        return self._inner.heartbeat_endpoint

    @property
    def dht_endpoint(self) -> Endpoint:
        """Where the DHT's datagrams are taken, once started; port 0 if they are not."""
        return self._inner.dht_endpoint

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes to the peers that are called through one; before `start`."""
        self._inner.use_pipes(pipes)

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        self._inner.accept(pipe)

    async def start(self) -> None:
        """Bind; ConfigError names a port that is taken."""
        await self._inner.start()

    async def stop(self) -> None:
        """Let go of everything."""
        await self._inner.stop()

    async def wait_closed(self) -> None:
        """Wait for the end; raise what made a transport fail."""
        await self._inner.wait_closed()


MakeCarriers = Callable[[NodeKey, TokenRing, SwarmNodeConfig], Carriers]


class NetworkCarriers(Service):
    """gRPC with mutual TLS, and sealed UDP on two ports."""

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
        dht_port = config.dht.port
        self.dht_datagrams = UdpTransport(
            tokens.sealer,
            Endpoint(network.host, network.bound_grpc_port if dht_port is None else dht_port),
            context=DHT_CONTEXT,
            may_move=dht_port is None,
        )
        self._has_dht = config.dht.enabled

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

    @property
    def dht_endpoint(self) -> Endpoint:
        """Where the DHT's datagrams are taken, once started; port 0 if they are not."""
        return self.dht_datagrams.endpoint if self._has_dht else Endpoint("", 0)

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.enter_context(quiet_accepting(SystemClock()))
        await stack.enter_async_context(self.datagrams)
        await stack.enter_async_context(self.rpc)
        if self._has_dht:
            await stack.enter_async_context(self.dht_datagrams)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        dht = (self.dht_datagrams.wait_closed(),) if self._has_dht else ()
        return (self.datagrams.wait_closed(), self.rpc.wait_closed(), *dht)
