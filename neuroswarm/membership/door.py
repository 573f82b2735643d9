"""Whether a caller's request is taken, judged before any of it is decoded.

Refuses to know what is asked. The caller's identity was proven by TLS, so that a flood can only
ever cost the flooder its standing.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.membership.versions import agree
from neuroswarm.transport import Admission
from neuroswarm.values import PROTOCOL_VERSION, NodeId
from neuroswarm.wire import limits


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """What one caller may send.

    In an honest swarm of 1,000 a caller relays each of 1,000 peers' few statements a round once,
    up to 64 in a push: some hundred calls and a few MB.
    """

    calls_per_s: float = 100.0
    burst_calls: float = 2000.0
    bytes_per_s: float = 16.0 * 1024 * 1024
    burst_bytes: float = 32.0 * limits.MAX_MESSAGE_BYTES


class Door:
    """Lets callers in that are not banned and within their limits; notes floods."""

    def __init__(
        self,
        peers: PeerTable,
        caller_limits: CallerLimits | None = None,
        *,
        protocol: int = PROTOCOL_VERSION,
    ) -> None:
        """Take the table that knows the bans, and learns of floods; and this node's protocol."""
        self._protocol = protocol
        bounds = caller_limits or CallerLimits()
        self._peers = peers
        self._calls: TokenBuckets[NodeId] = TokenBuckets(
            per_s=bounds.calls_per_s, burst=bounds.burst_calls
        )
        self._bytes: TokenBuckets[NodeId] = TokenBuckets(
            per_s=bounds.bytes_per_s, burst=bounds.burst_bytes
        )
        self._notes: TokenBuckets[NodeId] = TokenBuckets(per_s=1.0, burst=1.0)
        self.num_admitted = 0
        """Requests let in, to be decoded."""
        self.num_banned = 0
        """Requests refused since their callers are banned."""
        self.num_other_versions = 0
        """Requests refused since their callers announce a version that is not spoken here."""
        self.num_floods = 0
        """Requests refused since their callers send too much."""

    def admit(self, caller: NodeId, num_bytes: int, now: float) -> Admission:
        """Judge one request of `num_bytes` >= 0 at monotonic time `now`, and count it."""
        is_within = self._calls.allows(caller, now) and self._bytes.allows(caller, now, num_bytes)
        if not is_within:
            self.num_floods += 1
            if self._notes.allows(caller, now):
                self._peers.offend(caller, Offence.FLOOD, now)
            return Admission.TOO_MUCH
        if self._peers.is_banned(caller, now):
            self.num_banned += 1
            return Admission.BANNED
        peer = self._peers.get(caller)
        if peer is not None and agree(self._protocol, peer.heartbeat.protocol) is None:
            self.num_other_versions += 1
            return Admission.OTHER_VERSION
        self.num_admitted += 1
        return Admission.WELCOME
