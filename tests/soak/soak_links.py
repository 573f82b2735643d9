"""A bad network around a node's real sockets: lost, blocked and late messages, each counted.

Everything is judged where it is sent; while a partition holds, also where it arrives. A call that
is struck behaves as over a dead link: nothing comes back, it runs into its deadline.
Knows nothing of when what is in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.errors import PeerUnreachable
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.node.carriers import NetworkCarriers, WrappedCarriers
from neuroswarm.transport import DatagramHandler, Datagrams, Rpc
from neuroswarm.values import Endpoint, PeerAddress
from neuroswarm.wrapping import WrappedDatagrams, WrappedRpc

STATE = "State/"
MANIFEST = "State/Manifest"


@dataclass(frozen=True, slots=True)
class Orders:
    """What is in force."""

    blocked: frozenset[int] = frozenset()
    """Ports out of reach: of calls and of datagrams."""
    loss: float = 0.0
    """Share of calls and datagrams that are lost."""
    timeouts: float = 0.0
    """Share of the other calls that run into their deadline although the peer has answered."""
    slow_state_s: float = 0.0
    """Seconds that each call or message of a state transfer takes longer."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Orders:
        """From JSON values."""
        return cls(**{**values, "blocked": frozenset(values["blocked"])})


class Links:
    """The orders of one node, and how often each kind of fault struck."""

    def __init__(self, seed: int) -> None:
        """Nothing is in force; chance follows from the seed."""
        self.orders = Orders()
        self.counts: Counter[str] = Counter()
        self.state_sources: list[int] = []
        """Ports of the peers that were asked for parts of a state, in order."""
        self._random = random.Random(seed)

    def is_blocked(self, port: int, what: str) -> bool:
        """Whether a partition holds between here and that port; counted."""
        is_out = port in self.orders.blocked
        self.counts[f"{what} blocked"] += is_out
        return is_out

    def is_lost(self, what: str) -> bool:
        """Whether chance loses this one; counted."""
        is_hit = self._random.random() < self.orders.loss
        self.counts[f"{what} lost"] += is_hit
        return is_hit

    def is_late(self) -> bool:
        """Whether this call's answer comes after the deadline; counted."""
        is_hit = self._random.random() < self.orders.timeouts
        self.counts["timeouts forced"] += is_hit
        return is_hit

    def note_call(self, port: int, method: str) -> None:
        """Count a call, and remember who gives a state."""
        self.counts["calls"] += 1
        if method.startswith(STATE) and method != MANIFEST and self.state_sources[-1:] != [port]:
            self.state_sources.append(port)

    def delay_s(self, method: str) -> float:
        """Seconds that this call or message takes longer."""
        return self.orders.slow_state_s if method.startswith(STATE) else 0.0


async def _pause(seconds: float) -> None:
    """Let time pass."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


class BadRpc(WrappedRpc):
    """`transport.Rpc` over another one, with faults."""

    def __init__(self, rpc: Rpc, links: Links) -> None:
        super().__init__(rpc)
        self._links = links

    async def call(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Call, unless a fault strikes: then its deadline passes."""
        links, port = self._links, peer.endpoint.port
        deadline = asyncio.get_running_loop().time() + timeout_s
        links.note_call(port, method)
        if links.is_blocked(port, "calls") or links.is_lost("calls"):
            await self._run_out(peer, deadline)
        is_late = links.is_late()
        await self._delay(peer, method, deadline)
        reply = await self.inner.call(peer, method, request, timeout_s=self._left_s(deadline))
        if is_late or links.is_blocked(port, "replies"):
            await self._run_out(peer, deadline)
        return reply

    async def call_anew(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> bytes:
        """Like `call`: new connections meet the same faults."""
        return await self.call(peer, method, request, timeout_s=timeout_s)

    async def stream(
        self, peer: PeerAddress, method: str, request: bytes, *, timeout_s: float
    ) -> AsyncIterator[bytes]:
        """Call, unless a fault strikes: at the start, or after the first message."""
        links, port = self._links, peer.endpoint.port
        deadline = asyncio.get_running_loop().time() + timeout_s
        links.note_call(port, method)
        if links.is_blocked(port, "calls") or links.is_lost("calls"):
            await self._run_out(peer, deadline)
        is_late = links.is_late()
        messages = self.inner.stream(peer, method, request, timeout_s=timeout_s)
        async with aclosing(messages):
            async for message in messages:
                await self._delay(peer, method, deadline)
                if is_late or links.is_blocked(port, "replies"):
                    await self._run_out(peer, deadline)
                yield message

    async def _delay(self, peer: PeerAddress, method: str, deadline: float) -> None:
        delay_s = self._links.delay_s(method)
        if delay_s >= self._left_s(deadline):
            await self._run_out(peer, deadline)
        if delay_s:
            await _pause(delay_s)

    async def _run_out(self, peer: PeerAddress, deadline: float) -> None:
        await _pause(self._left_s(deadline))
        raise PeerUnreachable(f"no answer from {peer} in time")

    def _left_s(self, deadline: float) -> float:
        return max(0.001, deadline - asyncio.get_running_loop().time())


class BadDatagrams(WrappedDatagrams):
    """`transport.Datagrams` over another one, with faults."""

    def __init__(self, datagrams: Datagrams, links: Links) -> None:
        super().__init__(datagrams)
        self._links = links

    def on_datagram(self, handler: DatagramHandler) -> None:
        """Hand on what no partition keeps out."""

        def receive(data: bytes, source: Endpoint) -> None:
            if not self._links.is_blocked(source.port, "datagrams"):
                handler(data, source)

        super().on_datagram(receive)

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send, unless a fault strikes."""
        links = self._links
        links.counts["datagrams"] += 1
        if not (links.is_blocked(to.port, "datagrams") or links.is_lost("datagrams")):
            super().send(to, data)


class BadCarriers(WrappedCarriers):
    """`node.carriers.Carriers`: gRPC and UDP over a bad network."""

    def __init__(
        self, key: NodeKey, tokens: TokenRing, config: SwarmNodeConfig, links: Links
    ) -> None:
        carriers = NetworkCarriers(key, tokens, config)
        super().__init__(
            carriers,
            rpc=BadRpc(carriers.rpc, links),
            datagrams=BadDatagrams(carriers.datagrams, links),
            dht_datagrams=BadDatagrams(carriers.dht_datagrams, links),
        )
