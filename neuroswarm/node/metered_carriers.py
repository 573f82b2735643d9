"""A node's transports behind its meter.

Knows nothing of what is carried, and not what is allowed.
"""

from __future__ import annotations

from neuroswarm.metering.metered import Gate, MeteredDatagrams, MeteredRpc
from neuroswarm.node.carriers import Carriers
from neuroswarm.transport import Pipe, Pipes
from neuroswarm.values import Endpoint

SELF_PACED = ("State/Piece",)
"""Streams that their handlers pace: a donor must know for how long it held a downloader up."""


class MeteredCarriers:
    """A node's transports behind its meter."""

    def __init__(self, inner: Carriers, gate: Gate) -> None:
        self._inner = inner
        self.rpc = MeteredRpc(inner.rpc, gate, unpaced=SELF_PACED)
        self.datagrams = MeteredDatagrams(inner.datagrams, gate)
        self.dht_datagrams = MeteredDatagrams(inner.dht_datagrams, gate)

    @property
    def grpc_endpoint(self) -> Endpoint:
        """Where calls are answered; once started."""
        return self._inner.grpc_endpoint

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where datagrams are taken; once started."""
        return self._inner.heartbeat_endpoint

    def use_pipes(self, pipes: Pipes) -> None:
        """Set who makes pipes to the peers that are called through one; before `start`."""
        self._inner.use_pipes(pipes)

    def accept(self, pipe: Pipe) -> None:
        """Answer the calls that come through a pipe."""
        self._inner.accept(pipe)

    @property
    def dht_endpoint(self) -> Endpoint:
        """Where the DHT's datagrams are taken, once started; port 0 if they are not."""
        return self._inner.dht_endpoint

    async def start(self) -> None:
        """Bind; ConfigError names a port that is taken."""
        await self._inner.start()

    async def stop(self) -> None:
        """Let go of everything."""
        await self._inner.stop()

    async def wait_closed(self) -> None:
        """Wait for the end; raise what made a transport fail."""
        await self._inner.wait_closed()
