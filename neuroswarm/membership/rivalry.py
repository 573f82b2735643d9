"""Two records of one key from two lives: who of their makers is to be shown the other's.

They may be a node before and after a restart, which is nothing, or two nodes with one key, which
only a third one can see: each of them would else just not be heard any more. Refuses to judge
(`neuroswarm.membership.presence`) and to send.
"""

from __future__ import annotations

from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.values import NodeId
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Signed

SHOWN_PER_S, SHOWN_BURST = 1.0, 4.0
"""Records shown to the holders of one key: enough for both to prove that they live."""


class Rivalry:
    """Finds them among the records that come in."""

    def __init__(self, peers: PeerTable) -> None:
        """Take the table that knows the newest record of every key."""
        self._peers = peers
        self._shown: TokenBuckets[NodeId] = TokenBuckets(per_s=SHOWN_PER_S, burst=SHOWN_BURST)

    def find(
        self, signed: Signed, heartbeat: Heartbeat, now: float, *, host_seen: str | None
    ) -> tuple[Peer, Peer] | None:
        """Compare a record with the one that is known of its signer; before it is observed.

        Args:
            signed: The verified statement.
            heartbeat: Its body.
            now: Monotonic time.
            host_seen: Source address if its signer sent it itself, else None: hearsay is no sign
                of two nodes.

        Returns:
            The known maker and the new one as peers, if they are of two lives at two endpoints;
            both with the addresses that they have now.
        """
        known = self._peers.get_last(signed.signer)
        if host_seen is None or known is None or known.heartbeat.instance == heartbeat.instance:
            return None
        newer = Peer(signed.signer, heartbeat, signed, now, host_seen)
        older = Peer(
            known.node_id,
            known.heartbeat,
            known.signed,
            known.last_seen_s,
            known.host_seen,
            host_answered=known.host_answered,
        )
        if older.heartbeat_endpoint == newer.heartbeat_endpoint:
            return None
        return older, newer

    def allows(self, loser: Peer, now: float) -> bool:
        """Whether one more record may be shown to a holder of this key; counts it if so."""
        return self._shown.allows(loser.node_id, now)
