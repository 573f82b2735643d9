"""Tells all known peers every few seconds that this node lives, and hears that they do.

Refuses to know what is in a record, and what follows from a peer's silence.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config import HeartbeatConfig
from neuroswarm.errors import BadSignature, MessageTooLarge, PeerError
from neuroswarm.heartbeat.datagram import Datagram, decode_datagram, encode_datagram
from neuroswarm.heartbeat.links import Links
from neuroswarm.heartbeat.remembered import Remembered
from neuroswarm.heartbeat.restraint import Restraint
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.own_record import Hearing, OwnRecord
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.received import read_record
from neuroswarm.membership.rivalry import Rivalry
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.service import Service
from neuroswarm.transport import Datagrams
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import Endpoint, NodeId, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.signed import PUBLIC_KEY_BYTES, Signed

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 256
"""Endpoints of forgotten peers that are tried now and then, so that a partition heals."""

REMEMBERED_PER_INTERVAL = 3
NEWS_PER_S = 50.0
NEWS_BURST = 100.0
"""New records that one signer may make: one an interval, one a round, one a newcomer it greets."""

KEEP_OPEN_S = 20.0
"""Longest time between two heartbeats of a node behind a NAT: some forget its way out after 30 s,
and a heartbeat may get lost."""

MAX_PASSED_ON = 32
"""Datagrams an interval, with 3 records each, to a peer that this node relays for."""

_JITTER = 0.1
_REASONS: Mapping[type[PeerError], str] = {
    BadSignature: "bad_signature",
    MessageTooLarge: "too_large",
}


class HeartbeatService(Service):
    """Sends this node's record to all peers and hints, with up to 3 others in turn.

    A record from a peer that was not known is answered at once, so that two nodes know each
    other after one round trip. The transport must be running while this service runs.
    """

    name = "heartbeat"

    def __init__(
        self,
        config: HeartbeatConfig,
        *,
        datagrams: Datagrams,
        record: OwnRecord,
        peers: PeerTable,
        clock: Clock,
        hints: Sequence[Endpoint] = (),
    ) -> None:
        """Wire it up; before the transport starts.

        Args:
            config: The interval.
            datagrams: Carries sealed datagrams; this service takes all that arrive.
            record: Makes this node's signed heartbeats.
            peers: Who is known; fed from here.
            clock: Tells the time and waits.
            hints: Heartbeat endpoints to tell, whether known as peers or not.
        """
        super().__init__()
        self._interval_s = config.interval_s
        self._datagrams = datagrams
        self._record = record
        self._peers = peers
        self._clock = clock
        self._hints = tuple(hints)
        self._remembered = Remembered(MAX_REMEMBERED)
        self._restraint = Restraint()
        self._links = Links(config.interval_s)
        self._one_way: frozenset[NodeId] = frozenset()
        self._turn = 0
        self._passed = 0
        self._is_open = False
        self._random = random.Random(record.node_id)
        self._rivalry = Rivalry(peers)
        self._dropped: Counter[str] = Counter()
        self._news: TokenBuckets[NodeId] = TokenBuckets(per_s=NEWS_PER_S, burst=NEWS_BURST)
        self._notes: TokenBuckets[NodeId] = TokenBuckets(per_s=1.0, burst=1.0)
        self.num_sent = 0
        self.num_received = 0
        datagrams.on_datagram(self._take)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Received records that were of no use, by reason.

        Reasons: `malformed`, `too_large`, `bad_signature`, `banned`, `not_newer`, `no_room`, `own`,
        `flood`.
        """
        return dict(self._dropped)

    @property
    def one_way_links(self) -> list[NodeId]:
        """Peers that are heard, but do not hear this node; by node id."""
        return self._links.one_way(self._clock.monotonic())

    def announce_now(self) -> None:
        """Tell everyone at once, besides the regular heartbeats."""
        if self._is_open:
            self._announce()

    def greet(self, endpoints: Iterable[Endpoint], *, is_given: bool = False) -> None:
        """Tell this node's record once to endpoints where peers may be, but to known peers'.

        Args:
            endpoints: Where to.
            is_given: Whether the node's user named them. To others, which anybody may have made
                up, only as much is sent as to any that was merely announced.
        """
        if not self._is_open or self._record.is_mute:
            return
        now = self._clock.monotonic()
        known = {peer.heartbeat_endpoint for peer in self._peers.alive(now)}
        own = self._record.make(self._clock.wall())
        for endpoint in endpoints:
            if endpoint not in known and (is_given or self._restraint.allows(endpoint, now)):
                self._send(endpoint, own, ())

    def remember(self, peers: Iterable[tuple[NodeId, Endpoint]]) -> None:
        """Try peers of former days as those that fell silent: a few an interval, till they answer.

        At first all of them at once.
        """
        known = [(node_id, endpoint) for node_id, endpoint in peers if node_id != self._peers.me]
        for node_id, endpoint in known:
            if self._peers.get(node_id) is None:
                self._remembered.add(node_id, endpoint)
        self.greet([endpoint for _, endpoint in known])

    def leave(self) -> None:
        """Tell everyone at once that this node stops; later heartbeats say so too."""
        self._record.leave()
        self.announce_now()

    def come_back(self) -> None:
        """Tell everyone at once that this node is there again after a `leave` that it outlived."""
        self._record.come_back()
        self.announce_now()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._is_open = True
        stack.callback(self._leave)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._beat(),)

    async def _beat(self) -> None:
        while True:
            self._announce()
            is_closed = self._record.describe().reach is Reach.CLOSED
            interval_s = min(self._interval_s, KEEP_OPEN_S) if is_closed else self._interval_s
            await self._clock.sleep(interval_s * self._random.uniform(1 - _JITTER, 1 + _JITTER))
            self._expire()
            self._say_one_way_links()

    def _leave(self) -> None:
        self.leave()
        self._is_open = False

    def _announce(self) -> None:
        if self._record.is_mute:
            return
        own = self._record.make(self._clock.wall())
        now = self._clock.monotonic()
        alive = self._peers.alive(now)
        for endpoint, peer in self._receivers(now):
            if peer is None or self._may_tell(peer, endpoint, now):
                node_id = None if peer is None else peer.node_id
                self._send(endpoint, own, self._in_turn(alive, node_id), node_id)
            if peer is not None and self._peers.me in peer.heartbeat.relays:
                self._pass_on(peer, own, alive)

    def _pass_on(self, client: Peer, own: Signed, alive: Sequence[Peer]) -> None:
        """Tell a peer that this node relays for of those whose heartbeats cannot reach it."""
        closed = [
            peer.signed
            for peer in alive
            if peer.heartbeat.reach is Reach.CLOSED and peer.node_id != client.node_id
        ]
        size, self._passed = limits.MAX_HEARD, self._passed + 1
        start = self._passed * MAX_PASSED_ON * size % max(1, len(closed))
        in_turn = (closed[start:] + closed[:start])[: MAX_PASSED_ON * size]
        for first in range(0, len(in_turn), size):
            some = in_turn[first : first + size]
            self._send(client.heartbeat_endpoint, own, some, client.node_id)

    def _may_tell(self, peer: Peer, endpoint: Endpoint, now: float) -> bool:
        """Whether a datagram may go to the peer's endpoint, which it may only have announced."""
        is_sure = peer.is_heard_there or endpoint in self._hints
        return is_sure or self._restraint.allows(endpoint, now)

    def _receivers(self, now: float) -> Iterator[tuple[Endpoint, Peer | None]]:
        """Every endpoint to tell, once, with the peer that is there if it is known.

        Of peers at the same endpoint the one that is surely there counts.
        """
        staying = (peer for peer in self._peers.all(now) if not peer.heartbeat.is_leaving)
        by_proof = sorted(staying, key=lambda peer: peer.is_heard_there)
        known = {endpoint: peer for peer in by_proof for endpoint in peer.heartbeat_endpoints}
        yield from known.items()
        forgotten = self._remembered.take_turn(REMEMBERED_PER_INTERVAL)
        others = dict.fromkeys((*self._hints, *forgotten))
        yield from ((endpoint, None) for endpoint in others if endpoint not in known)

    def _in_turn(self, alive: Sequence[Peer], receiver: NodeId | None) -> list[Signed]:
        """The next few live peers' records, but the receiver's own."""
        others = [peer.signed for peer in alive if peer.node_id != receiver]
        count = min(limits.MAX_HEARD, len(others))
        start = self._turn
        self._turn += count
        return [others[(start + i) % len(others)] for i in range(count)]

    def _send(
        self, to: Endpoint, own: Signed, heard: Sequence[Signed], receiver: NodeId | None = None
    ) -> None:
        if to.port == 0:
            return  # a bare tracker takes no heartbeats
        self.num_sent += 1
        hears = self._links.tell(receiver, self._clock.monotonic())
        self._datagrams.send(to, encode_datagram(own, heard, hears))

    def _take(self, data: bytes, source: Endpoint) -> None:
        if not self._is_open:
            return
        self.num_received += 1
        new: list[Peer | None] = []
        try:
            datagram = decode_datagram(data)
            new.append(self._take_record(datagram.own, source))
        except PeerError as error:
            self._drop(error)
            return
        self._note_link(datagram)
        for message in datagram.heard:
            try:
                new.append(None if self._is_held(message) else self._take_record(message, None))
            except PeerError as error:
                self._drop(error)
        self._answer(peer for peer in new if peer is not None)

    def _note_link(self, datagram: Datagram) -> None:
        """Take its word for which way the link carries, if its sender is a peer."""
        peer = self._peers.get(NodeId.of_key(datagram.own.public_key))
        if peer is not None:
            self._links.note(peer.node_id, datagram.hears, self._clock.monotonic())

    def _take_record(self, message: envelope_pb2.Signed, source: Endpoint | None) -> Peer | None:
        """Feed one record to the table; its signer if it was not known.

        Args:
            message: The record.
            source: Where it came from if its signer sent it, None if another passed it on.

        Raises:
            PeerError: the record is not authentic, or malformed.
        """
        now, host_seen = self._clock.monotonic(), None if source is None else source.host
        if self._is_of_banned(message, now):
            self._dropped["banned"] += 1
            return None
        signed, heartbeat = read_record(message)
        if signed.signer == self._peers.me:
            self._hear_own(Peer(signed.signer, heartbeat, signed, now, host_seen))
            return None
        is_known = self._peers.get(signed.signer) is not None
        rival = self._rivalry.find(signed, heartbeat, now, host_seen=host_seen)
        is_news = self._peers.observe(signed, heartbeat, now, host_seen=host_seen)
        if rival is not None:
            self._tell_rival(*rival, signed if is_news else None, now)
        if not is_news:
            self._dropped["not_newer" if is_known else "no_room"] += 1
            return None
        if source is not None:
            self._peers.note_hole(signed.signer, source)
            self._peers.note_clock(signed.signer, heartbeat.time - self._clock.wall())
        self._remembered.discard(signed.signer)
        self._count_news(signed.signer, now)
        return None if is_known or heartbeat.is_leaving else self._peers.get(signed.signer)

    def _hear_own(self, maker: Peer) -> None:
        """Take a record under this node's own key, of this life or another."""
        self._dropped["own"] += 1
        hearing, now = self._record.hear(maker.heartbeat), maker.last_seen_s
        if hearing is Hearing.NOTHING or not self._notes.allows(self._peers.me, now):
            return
        if hearing is Hearing.TELL_ALL:
            self._announce()
        if self._restraint.allows(maker.heartbeat_endpoint, now):
            self._send(maker.heartbeat_endpoint, self._record.make(self._clock.wall()), ())

    def _tell_rival(self, older: Peer, newer: Peer, taken: Signed | None, now: float) -> None:
        """Show the holder of a key that another one has it too."""
        loser, shown = (newer, older.signed) if taken is None else (older, taken)
        if self._record.is_mute or not self._rivalry.allows(loser, now):
            return
        if loser.is_heard_there or self._restraint.allows(loser.heartbeat_endpoint, now):
            own = self._record.make(self._clock.wall())
            self._send(loser.heartbeat_endpoint, own, [shown])

    def _count_news(self, signer: NodeId, now: float) -> None:
        """Hold too many new records against their signer, who alone can make them.

        Never against a datagram's source address, which is spoofed easily, and never for records
        that are no news: whoever caught them can send them again.
        """
        if self._news.allows(signer, now):
            return
        self._dropped["flood"] += 1
        if self._notes.allows(signer, now):
            self._peers.offend(signer, Offence.FLOOD, now)

    def _answer(self, newcomers: Iterable[Peer]) -> None:
        now = self._clock.monotonic()
        to_tell = [(peer, endpoint) for peer in newcomers for endpoint in peer.heartbeat_endpoints]
        for peer, endpoint in to_tell:
            if self._record.is_mute or not self._may_tell(peer, endpoint, now):
                continue
            own = self._record.make(self._clock.wall())
            alive = self._peers.alive(now)
            self._send(endpoint, own, self._in_turn(alive, peer.node_id), peer.node_id)

    def _is_of_banned(self, message: envelope_pb2.Signed, now: float) -> bool:
        """Whether it names a banned signer, so that it is refused whoever made it."""
        has_key = len(message.public_key) == PUBLIC_KEY_BYTES
        return has_key and self._peers.is_banned(NodeId.of_key(message.public_key), now)

    def _is_held(self, message: envelope_pb2.Signed) -> bool:
        """Whether exactly this record is in the table, so that it need not be verified again."""
        if len(message.public_key) != PUBLIC_KEY_BYTES:
            return False
        peer = self._peers.get(NodeId.of_key(message.public_key))
        return peer is not None and peer.signed.signature == message.signature

    def _say_one_way_links(self) -> None:
        found = frozenset(self.one_way_links)
        for node_id in found - self._one_way:
            peer = self._peers.get(node_id)
            logger.warning(
                "peer %s is heard, but does not hear this node%s: a firewall between lets nothing "
                "through that way, or this node announces a wrong address",
                node_id,
                "" if peer is None else f" (it is at {peer.heartbeat_endpoint})",
            )
        self._one_way = found

    def _expire(self) -> None:
        for peer in self._peers.expire(self._clock.monotonic()):
            if not peer.heartbeat.is_leaving and peer.is_proven_there:
                self._remembered.add(peer.node_id, peer.announced_endpoint)

    def _drop(self, error: PeerError) -> None:
        self._dropped[_REASONS.get(type(error), "malformed")] += 1
        logger.debug("heartbeat dropped: %s", error)
