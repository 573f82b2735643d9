"""One end of `MemoryNetwork` for datagrams."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from neuroswarm.errors import LifecycleError, PeerError
from neuroswarm.identity.sealing import OVERHEAD_BYTES
from neuroswarm.service import Service, State
from neuroswarm.testing.faults import DATAGRAM, Passage, Place
from neuroswarm.transport import DatagramHandler
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits

if TYPE_CHECKING:
    from neuroswarm.testing.memory_network import MemoryNetwork


class MemoryDatagrams(Service):
    """`transport.Datagrams` in memory; made by `MemoryNetwork.datagrams`."""

    name = "datagrams"

    def __init__(self, network: MemoryNetwork, endpoint: Endpoint, place: Place) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.place = place
        """Under what faults strike it: its node's id or its endpoint."""
        self.num_received = 0
        """Datagrams that arrived."""
        self.num_dropped = 0
        """Datagrams that the handler refused."""
        self.bytes_sent = 0
        self.bytes_received = 0
        self._network = network
        self._handler: DatagramHandler | None = None

    def on_datagram(self, handler: DatagramHandler) -> None:
        """Set who takes datagrams; before `start`."""
        if self.state is not State.NEW:
            raise LifecycleError("datagrams: the handler is set before start")
        self._handler = handler

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send at most `limits.MAX_DATAGRAM_BYTES` bytes; loss is silent."""
        if self.state is State.NEW:
            raise LifecycleError("datagrams: start it before sending")
        if len(data) > limits.MAX_DATAGRAM_BYTES:
            raise ValueError(
                f"datagram too large: {len(data)} bytes (limit {limits.MAX_DATAGRAM_BYTES})"
            )
        if self.state is not State.RUNNING:
            return
        self.bytes_sent += len(data) + OVERHEAD_BYTES
        if self._network.find_datagrams(self.endpoint) is not self:
            return
        target = self._network.find_datagrams(to)
        if target is None:
            return
        passage = Passage(self.place, target.place, DATAGRAM, data)
        delay_s = self._network.strike(passage)
        if delay_s is not None:
            asyncio.get_running_loop().call_later(delay_s, target.receive, data, self.endpoint)

    def receive(self, data: bytes, source: Endpoint) -> None:
        """Hand a datagram on, if this end still is on the network."""
        is_here = self._network.find_datagrams(self.endpoint) is self
        if self.state is not State.RUNNING or not is_here:
            return
        self.num_received += 1
        self.bytes_received += len(data) + OVERHEAD_BYTES
        if self._handler is None:
            return
        try:
            self._handler(data, source)
        except PeerError:
            self.num_dropped += 1

    async def _open(self, stack: AsyncExitStack) -> None:
        """Nothing to acquire."""
