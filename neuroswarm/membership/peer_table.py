"""Every peer that this node knows, with its newest record and signs of life.

Refuses to know how records travel; they arrive here verified and decoded. Times are instants of
the monotonic clock, in seconds. Belongs to the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from neuroswarm.membership.address_quota import AddressQuota
from neuroswarm.membership.bans import Ban, Bans
from neuroswarm.membership.conduct import Conduct, Offence, Standing
from neuroswarm.membership.peer import Peer
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Signed

ALIVE_INTERVALS = 3.0
"""Heartbeat intervals of silence after which a peer is not counted as alive."""

SUSPECT_INTERVALS = 1.5
"""The same for a peer that failed to answer a call."""

FORGET_INTERVALS = 12.0
"""Intervals of silence after which a peer is forgotten (60 s at the default of 5 s)."""

_RTT_GAIN = 1 / 8


class PeerTable:
    """Known peers by node id, at most `max_peers`.

    When it is full, a newcomer takes the place of the peer that was silent longest, if that one
    is not alive; otherwise the newcomer is not taken. Sequences of forgotten peers are remembered
    (four times as many), so that a replayed record does not bring a dead peer back.
    """

    def __init__(
        self,
        me: NodeId,
        interval_s: float,
        max_peers: int = 4096,
        *,
        max_per_address: int | None = None,
    ) -> None:
        """Start empty.

        Args:
            me: This node, which is never its own peer.
            interval_s: Seconds between two heartbeats of a peer, > 0.
            max_peers: Bound on peers, on bans and on scores, >= 1.
            max_per_address: Peers at one IPv4 address or IPv6 /64, >= 1; None for no such limit.
        """
        self.me = me
        self.interval_s = interval_s
        self._max_peers = max_peers
        self._peers: dict[NodeId, Peer] = {}
        self._bans = Bans(max_peers)
        self._conduct = Conduct(max_peers)
        self.quota = AddressQuota(max_per_address)
        self._on_leaving: list[Callable[[NodeId], None]] = []
        self._forgotten: OrderedDict[NodeId, Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def observe(
        self, signed: Signed, heartbeat: Heartbeat, now: float, *, host_seen: str | None
    ) -> bool:
        """Take a verified record.

        Args:
            signed: The statement that carried it; its signer is the peer.
            heartbeat: Its decoded body.
            now: Monotonic time.
            host_seen: Source address if the peer itself sent it, None if another passed it on.

        Returns:
            Whether it was news: newer than what is known of that peer, which is not this node,
            not banned, and for which there is room, in the table and at its address.
        """
        node_id = signed.signer
        if node_id == self.me or self._bans.holds(node_id, now):
            return False
        known = self._peers.get(node_id)
        if heartbeat.sequence <= self._newest_sequence(node_id):
            is_first_own = known is not None and known.host_seen is None and known.signed == signed
            if is_first_own and self._take_place(node_id, heartbeat, now, host_seen):
                self._peers[node_id].host_seen = host_seen  # heard of it before it came itself
            return False
        if not self._take_place(node_id, heartbeat, now, host_seen):
            return False
        if known is None:
            if not self._make_room(now):
                self.quota.release(node_id)
                return False
            self._forgotten.pop(node_id, None)
            self._peers[node_id] = Peer(node_id, heartbeat, signed, now, host_seen, now)
            return True
        before = (known.heartbeat.hosts, known.heartbeat.grpc_port)
        if before != (heartbeat.hosts, heartbeat.grpc_port):
            known.note_move(now)
        is_leaving = heartbeat.is_leaving and not known.heartbeat.is_leaving
        known.heartbeat, known.signed, known.last_seen_s = heartbeat, signed, now
        known.host_seen = known.host_seen if host_seen is None else host_seen
        known.is_suspected = False
        if is_leaving:
            for callback in self._on_leaving:
                callback(node_id)
        return True

    def on_leaving(self, callback: Callable[[NodeId], None]) -> None:
        """Have it called whenever a peer says that it stops: its part may be missed soon."""
        self._on_leaving.append(callback)

    def note_clock(self, node_id: NodeId, offset_s: float) -> None:
        """Note how far a peer's clock is before this machine's, by its own heartbeat."""
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.clock_offset_s = offset_s

    def note_hole(self, node_id: NodeId, source: Endpoint) -> None:
        """Note where a peer's own newest datagram came from."""
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.hole = source

    def note_dialled(self, address: PeerAddress, *, is_reached: bool) -> None:
        """Note whether a peer was reached at that address by a connection of its own.

        Where it was reached it is called from now on, though it may not have announced it.
        """
        peer = self._peers.get(address.node_id)
        if peer is None or peer.heartbeat.grpc_port != address.endpoint.port:
            return
        if is_reached and peer.is_at(address.endpoint.host):
            peer.note_answer(address.endpoint.host)
        if peer.address == address:
            peer.is_dialled = is_reached

    def get(self, node_id: NodeId) -> Peer | None:
        """The peer, alive or not; None if it is not known."""
        return self._peers.get(node_id)

    def get_last(self, node_id: NodeId) -> Peer | None:
        """The peer, or what was last known of it if it is forgotten; None if nothing is."""
        return self._peers.get(node_id) or self._forgotten.get(node_id)

    def all(self, now: float) -> list[Peer]:
        """Every known peer that is not banned, by node id."""
        return [
            peer
            for node_id, peer in sorted(self._peers.items())
            if not self._bans.holds(node_id, now)
        ]

    def alive(self, now: float, swarm_id: bytes | None = None) -> list[Peer]:
        """Peers heard of lately, neither leaving nor banned, by node id.

        Args:
            now: Monotonic time.
            swarm_id: Only those of this swarm; None for all.
        """
        return [
            peer
            for peer in self.all(now)
            if self._is_alive(peer, now) and swarm_id in (None, peer.heartbeat.swarm_id)
        ]

    def training(self, now: float, swarm_id: bytes) -> list[Peer]:
        """Live peers of the swarm that take part in rounds, by node id."""
        return [peer for peer in self.alive(now, swarm_id) if peer.heartbeat.is_training]

    def is_alive(self, node_id: NodeId, now: float) -> bool:
        """Whether `alive` lists it."""
        peer = self._peers.get(node_id)
        return peer is not None and self._is_alive(peer, now) and not self._bans.holds(node_id, now)

    def touch(self, node_id: NodeId, now: float) -> None:
        """Count an authentic message of a peer as a sign of life; unknown peers stay unknown."""
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.last_seen_s = max(peer.last_seen_s, now)
            peer.is_suspected = False

    def suspect(self, node_id: NodeId, now: float | None = None) -> None:
        """Note a failed call: 1.5 silent intervals are then too many, until it is heard again.

        A peer with several hosts is tried at another one next, from `now` on.
        """
        peer = self._peers.get(node_id)
        if peer is not None:
            peer.is_suspected = True
            before = peer.host
            peer.note_failure()
            if peer.host != before and now is not None:
                peer.host_since_s = now

    def record_rtt(self, node_id: NodeId, rtt_s: float, now: float | None = None) -> None:
        """Fold a measured round trip, in seconds, into the peer's smoothed one.

        The answer also proves that the peer is at its host: with `now`, the monotonic time, unless
        it began to announce that host after the call was made.

        Source: RFC 6298, section 2 (SRTT, gain 1/8). Differs: no variance is kept.
        """
        peer = self._peers.get(node_id)
        if peer is not None:
            if now is None or now - rtt_s >= peer.host_since_s:
                peer.note_answer(peer.host)
            known = rtt_s if peer.rtt_s is None else peer.rtt_s
            peer.rtt_s = known + _RTT_GAIN * (rtt_s - known)

    def ban(self, node_id: NodeId, reason: str, until: float | None) -> None:
        """Refuse a peer until an instant of the monotonic clock, or for good (None)."""
        if node_id != self.me:
            self._bans.add(node_id, reason, until)

    def expel(self, node_ids: frozenset[NodeId]) -> None:
        """Refuse exactly these by the swarm's rules, besides those that are banned."""
        self._bans.expelled = node_ids - {self.me}

    def offend(self, node_id: NodeId, offence: Offence, now: float) -> bool:
        """Count an offence; too many in too short a time ban the peer for a while.

        Args:
            node_id: The authenticated party that did it: the caller or answerer that TLS proved,
                or the signer of a statement that verified. Never whom an unverified message
                names, nor a source address: that would let a spoofer ban its victim.
            offence: What it did.
            now: Monotonic time.

        Returns:
            Whether this led to a ban. Offences of this node, and of peers that are banned
            already (what they sent before arrives for a while), count for nothing.
        """
        if node_id == self.me or self._bans.holds(node_id, now):
            return False
        ban = self._conduct.note(node_id, offence, now)
        if ban is not None:
            self._bans.add(node_id, ban.reason, ban.until)
        return ban is not None

    def conduct(self, now: float) -> Mapping[NodeId, Standing]:
        """Score, offences and bans so far of every peer that offended, by node id."""
        return self._conduct.standings(now)

    def is_banned(self, node_id: NodeId, now: float) -> bool:
        """Whether the peer is refused at `now`."""
        return self._bans.holds(node_id, now)

    def is_banned_for_good(self, node_id: NodeId) -> bool:
        """Whether the peer is refused without an end."""
        return self._bans.is_for_good(node_id)

    def bans(self, now: float) -> Mapping[NodeId, Ban]:
        """The refusals that stand, by node id."""
        return self._bans.current(now)

    def expire(self, now: float) -> list[Peer]:
        """Forget the peers that were silent for 12 intervals, and bans that are over.

        Returns:
            Those forgotten, by node id.
        """
        self._bans.expire(now)
        limit_s = FORGET_INTERVALS * self.interval_s
        gone = [peer for _, peer in sorted(self._peers.items()) if now - peer.last_seen_s > limit_s]
        for peer in gone:
            self._forget(peer)
        return gone

    def _is_alive(self, peer: Peer, now: float) -> bool:
        intervals = SUSPECT_INTERVALS if peer.is_suspected else ALIVE_INTERVALS
        is_heard = now - peer.last_seen_s <= intervals * self.interval_s
        return is_heard and not peer.heartbeat.is_leaving

    def _newest_sequence(self, node_id: NodeId) -> int:
        peer = self._peers.get(node_id)
        peer = self._forgotten.get(node_id) if peer is None else peer
        return -1 if peer is None else peer.heartbeat.sequence

    def _take_place(
        self, node_id: NodeId, heartbeat: Heartbeat, now: float, host_seen: str | None
    ) -> bool:
        """Whether the peer has a place at its address, which another may have to give up."""
        known = self._peers.get(node_id)
        seen = host_seen if host_seen is not None or known is None else known.host_seen
        has_place, loser = self.quota.take(
            node_id, seen or heartbeat.host, now, is_seen=seen is not None
        )
        if loser is not None:
            self._forget(self._peers[loser])
        return has_place

    def _make_room(self, now: float) -> bool:
        if len(self._peers) < self._max_peers:
            return True
        gone = [p for p in self._peers.values() if not self.is_alive(p.node_id, now)]
        if not gone:
            return False
        self._forget(min(gone, key=lambda peer: (peer.last_seen_s, peer.node_id)))
        return True

    def _forget(self, peer: Peer) -> None:
        del self._peers[peer.node_id]
        self.quota.release(peer.node_id)
        self._forgotten[peer.node_id] = peer
        if len(self._forgotten) > 4 * self._max_peers:
            self._forgotten.popitem(last=False)
