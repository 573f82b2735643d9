"""The tracker in every node: answers who is there, and learns who asks.

Refuses to know HTTP; `neuroswarm.web` brings bodies here and takes the answers back.
"""

from __future__ import annotations

import logging
import random

from neuroswarm.clock import Clock
from neuroswarm.discovery.tracker_messages import open_request, seal_reply
from neuroswarm.errors import BadSignature, PeerError
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.wire import limits
from neuroswarm.wire.sealed_calls import Sealing
from neuroswarm.wire.signed import Signed

logger = logging.getLogger(__name__)

REQUESTS_PER_S = 5.0
BURST = 100
"""Requests that one address may make at once: as many nodes may sit behind one router."""

_LINE_EVERY_S = 60.0


class TrackerDirectory:
    """Answers sealed requests from the peer table.

    A bare tracker hears no heartbeats but those in requests: give its table an interval of
    `search.REFRESH_S`, so that a node stays listed between two requests.
    """

    def __init__(
        self, peers: PeerTable, *, sealer: Sealing, clock: Clock, record: OwnRecord | None = None
    ) -> None:
        """Wire it up.

        Args:
            peers: Who is known; askers are added to it.
            sealer: Holds the swarm's datagram key.
            clock: Tells the time.
            record: This node's own record, listed too; None for a bare tracker.
        """
        self._peers = peers
        self._sealer = sealer
        self._clock = clock
        self._record = record
        self._limit: TokenBuckets[str] = TokenBuckets(per_s=REQUESTS_PER_S, burst=BURST)
        self._random = random.Random(peers.me)
        self._num_refused_unsaid = 0
        self._quiet_until = 0.0
        self.num_answered = 0
        self.num_refused = 0

    def handle(self, body: bytes, remote_host: str) -> bytes:
        """Answer one request.

        Args:
            body: Sealed request.
            remote_host: Address that it came from.

        Returns:
            Sealed reply: at most 256 live peers of the asker's swarm, this node among them.

        Raises:
            BadSignature: sealed with another token; the asker is not of this swarm.
            ProtocolViolation: malformed or too large.
            PeerError: the address asks too often, or the asker is banned.
        """
        now = self._clock.monotonic()
        try:
            if not self._limit.allows(remote_host, now):
                raise PeerError(f"too many tracker requests from {remote_host}")
            signed, heartbeat = open_request(self._sealer, body)
            if self._peers.is_banned(signed.signer, now):
                raise PeerError(f"banned: {signed.signer}", peer=signed.signer)
        except PeerError as error:
            self._refuse(error, remote_host, now)
            raise
        self._peers.observe(signed, heartbeat, now, host_seen=remote_host)
        self.num_answered += 1
        listed = self._list(signed, heartbeat.swarm_id, now)
        return seal_reply(self._sealer, body, listed, remote_host)

    def _list(self, asker: Signed, swarm_id: bytes, now: float) -> list[Signed]:
        known = [
            peer.signed
            for peer in self._peers.alive(now, swarm_id)
            if peer.node_id != asker.signer or peer.signed != asker
        ]
        own: list[Signed] = []
        if self._record is not None and self._record.describe().swarm_id == swarm_id:
            own = [self._record.make(self._clock.wall())]
        room = limits.MAX_TRACKER_PEERS - len(own)
        return own + (known if len(known) <= room else self._random.sample(known, room))

    def _refuse(self, error: PeerError, remote_host: str, now: float) -> None:
        self.num_refused += 1
        self._num_refused_unsaid += 1
        if now < self._quiet_until:
            return
        self._quiet_until = now + _LINE_EVERY_S
        reason = "another swarm token" if isinstance(error, BadSignature) else str(error)
        logger.warning(
            "tracker refused %s: %s (%d refused since the last such line)",
            remote_host,
            reason,
            self._num_refused_unsaid,
        )
        self._num_refused_unsaid = 0
