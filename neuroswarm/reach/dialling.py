"""Calls back who asks for it, to tell whether calls from outside reach it.

Only where the asker is known to be, by its own signed heartbeat and its datagrams: nobody can have
others called. Refuses to judge what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError
from neuroswarm.membership.addresses import is_same_host
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.transport import Rpc
from neuroswarm.v1 import reach_pb2
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire.messages import parse
from neuroswarm.wire.reaching import DialReply

DIAL = "Reach/Dial"
HELLO = "Reach/Hello"

DIAL_TIMEOUT_S = 4.0
"""For one call back; an asker has two addresses at most, so it waits for twice as long."""

MAX_AT_ONCE = 8
"""Calls back in progress; further askers are told to come again."""

DIALS_PER_S, DIALS_BURST = 0.1, 4.0
"""Calls back for one asker."""


class DialBack:
    """The answering half of the Reach service."""

    def __init__(self, rpc: Rpc, peers: PeerTable, *, clock: Clock) -> None:
        """Register the handlers; the transport must not have started."""
        self._rpc = rpc
        self._peers = peers
        self._clock = clock
        self._limit: TokenBuckets[NodeId] = TokenBuckets(per_s=DIALS_PER_S, burst=DIALS_BURST)
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self.num_dialled = 0
        """Calls back made for others."""
        rpc.serve_unary(DIAL, self._on_dial)
        rpc.serve_unary(HELLO, self._on_hello)

    async def reaches(self, address: PeerAddress) -> str:
        """Try to call a peer straight there, and note in the table whether that worked.

        Returns:
            Why it did not; empty if it did.
        """
        try:
            request = reach_pb2.HelloRequest().SerializeToString()
            await self._rpc.call_anew(address, HELLO, request, timeout_s=DIAL_TIMEOUT_S)
        except PeerError as error:
            self._peers.note_dialled(address, is_reached=False)
            return str(error)
        self._peers.note_dialled(address, is_reached=True)
        return ""

    async def _on_dial(self, caller: NodeId, data: bytes) -> bytes:
        parse(reach_pb2.DialRequest, data)
        peer = self._peers.get(caller)
        if peer is None:
            raise PeerError("no heartbeat of you has come here yet: ask again later")
        if self._turns.locked() or not self._limit.allows(caller, self._clock.monotonic()):
            raise PeerError("too many calls back asked for: ask again later")
        reasons = []
        async with self._turns:
            for address in _addresses(peer):
                self.num_dialled += 1
                reason = await self.reaches(address)
                if not reason:
                    return DialReply(address.endpoint.host).encode()
                reasons.append(reason)
        return DialReply(reason="; ".join(reasons)).encode()

    async def _on_hello(self, _caller: NodeId, data: bytes) -> bytes:
        parse(reach_pb2.HelloRequest, data)
        return reach_pb2.HelloReply().SerializeToString()


def _addresses(peer: Peer) -> Iterator[PeerAddress]:
    """Where a peer says to be, and where its datagrams come from if that is elsewhere."""
    yield peer.address
    if peer.hole is not None and not is_same_host(peer.host, peer.hole.host):
        yield PeerAddress(peer.node_id, Endpoint(peer.hole.host, peer.heartbeat.grpc_port))
