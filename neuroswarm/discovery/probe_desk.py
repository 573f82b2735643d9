"""Answers probes over HTTP: how large an answer gets through, what this node sees of the asker.

Refuses to know HTTP; `neuroswarm.web` brings bodies here. Nothing is kept of who asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.sealed_calls import Sealing

PROBES_PER_S = 5.0
BURST = 100.0
"""Probes that one address may send at once: as many nodes may sit behind one router."""


class ProbeDesk:
    """Tells members with the swarm token the time, their address, and some nodes to ask next."""

    def __init__(
        self,
        peers: PeerTable,
        *,
        sealer: Sealing,
        clock: Clock,
        describe: Callable[[], Heartbeat] | None = None,
    ) -> None:
        """Wire it up.

        Args:
            peers: Who is known.
            sealer: Holds the swarm's datagram key.
            clock: Tells the time.
            describe: Makes this node's record, for its ports; None for a bare tracker.
        """
        self._peers = peers
        self._sealer = sealer
        self._clock = clock
        self._describe = describe
        self._random = random.Random(peers.me)
        self._limit: TokenBuckets[str] = TokenBuckets(per_s=PROBES_PER_S, burst=BURST)

    def handle(self, body: bytes, remote_host: str) -> bytes:
        """Answer one probe.

        Args:
            body: Sealed request.
            remote_host: Address that it came from.

        Returns:
            Sealed reply.

        Raises:
            BadSignature: sealed with another token.
            ProtocolViolation: malformed or too large.
            PeerError: the address asks too often.
        """
        now = self._clock.monotonic()
        if not self._limit.allows(remote_host, now):
            raise PeerError(f"too many probes from {remote_host}")
        wanted = probes.open_probe(self._sealer, body)
        own = None if self._describe is None else self._describe()
        alive = self._peers.alive(now)
        some = self._random.sample(alive, min(len(alive), limits.MAX_PROBE_PEERS))
        reply = probes.ProbeReply(
            self._clock.wall(),
            Endpoint(remote_host, 0),
            0 if own is None else own.grpc_port,
            0 if own is None else own.heartbeat_port,
            tuple(_neighbour(peer) for peer in some),
        )
        return probes.seal_probe_reply(self._sealer, body, reply, num_bytes=wanted)


def _neighbour(peer: Peer) -> probes.Neighbour:
    beat = peer.heartbeat
    return probes.Neighbour(peer.host, beat.http_port, beat.grpc_port, beat.heartbeat_port)
