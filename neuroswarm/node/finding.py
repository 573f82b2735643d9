"""Finds peers through the DHT, and lets itself be found there.

What is found is an address to greet and no more: who answers there proves itself by its heartbeat.
Refuses to know how records are kept.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Protocol

from neuroswarm.clock import Clock
from neuroswarm.config import DhtConfig
from neuroswarm.dht.service import DhtService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.service import Service
from neuroswarm.transport import Datagrams
from neuroswarm.values import Endpoint, NodeId, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.dht_records import DhtRecord, Relay, Scope, node_key, swarm_key
from neuroswarm.wire.heartbeats import Heartbeat

logger = logging.getLogger(__name__)

RENEWALS = 3
"""How often a record is renewed within its time to live."""

MAX_FRAGMENT_KEYS = 64
"""Fragments under whose keys a node is listed: the first ones that it hosts."""

ALONE_S = 10.0
"""Longest time between two lookups while no peer is alive."""

RETRY_S = 15.0
"""The same between two tries to publish while nobody keeps anything."""

LOOK_S = 2.0
"""Longest time until a change of this node's address is published."""

MAX_SOUGHT = 4
"""Silent peers whose own records are looked up in one round, for a new address."""

LEAVE_S = 2.0
"""Time to withdraw records when the node stops."""


class Greeter(Protocol):
    """Sends heartbeats."""

    def greet(self, endpoints: Iterable[Endpoint], *, is_given: bool = False) -> None:
        """Tell this node's record once to where peers may be."""
        ...


def draft_record(heartbeat: Heartbeat, peers: PeerTable) -> DhtRecord:
    """What a node with this heartbeat publishes in the DHT.

    Hosts with longer names than the DHT takes are left out, and so are relays that this node does
    not know itself.
    """
    hosts = tuple(h for h in heartbeat.hosts if len(h) <= limits.MAX_DHT_HOST_CHARS)
    known = [peer for relay in heartbeat.relays if (peer := peers.get(relay)) is not None]
    relays = tuple(Relay(peer.node_id, peer.address.endpoint) for peer in known)
    is_unreachable = heartbeat.reach is Reach.CLOSED
    return DhtRecord(
        swarm_id=heartbeat.swarm_id,
        scope=Scope.SWARM,
        hosts=hosts[: limits.MAX_DHT_HOSTS],
        grpc_port=heartbeat.grpc_port,
        heartbeat_port=heartbeat.heartbeat_port,
        dht_port=0 if is_unreachable else heartbeat.dht_port,
        http_port=heartbeat.http_port,
        protocol=heartbeat.protocol,
        is_unreachable=is_unreachable,
        relays=tuple(r for r in relays if len(r.endpoint.host) <= limits.MAX_DHT_HOST_CHARS),
        is_training=heartbeat.is_training,
        available_memory_mb=heartbeat.available_memory_mb,
        tokens_per_s=heartbeat.tokens_per_s,
        first_fragment=heartbeat.first_fragment,
        num_fragments=heartbeat.num_fragments,
        round=heartbeat.round,
        digest=heartbeat.digest,
    )


class Finder(Service):
    """Keeps this node's records in the DHT fresh, looks the swarm up, greets who is not known.

    Runs the DHT's service; without one it does nothing.
    """

    name = "finding"

    def __init__(
        self,
        dht: DhtService | None,
        config: DhtConfig,
        *,
        peers: PeerTable,
        greeter: Greeter,
        draft: Callable[[], DhtRecord | None],
        clock: Clock,
    ) -> None:
        """Wire it up.

        Args:
            dht: The DHT, started and stopped with this service; None to do without.
            config: Times.
            peers: Who is known, and so need not be greeted.
            greeter: Greets endpoints that were found.
            draft: What to publish of this node now; None while it may sign nothing.
            clock: Tells the time and waits.
        """
        super().__init__()
        self._dht = dht
        self._config = config
        self._peers = peers
        self._greeter = greeter
        self._draft = draft
        self._clock = clock
        self._random = random.Random(peers.me)
        self._published: DhtRecord | None = None
        self.num_found = 0
        """Nodes that the newest lookup of the swarm found, without this one."""
        self.num_greeted = 0
        """Times that a node which was found, and not known, was greeted."""
        self.num_keepers = 0
        """Nodes that keep this node's record under the key of the swarm."""
        self._has_met_someone = False
        self._has_looked = False
        if dht is not None:
            dht.seed_from(self._seeds)

    @property
    def dht(self) -> DhtService | None:
        """The DHT; None if this node takes no part in it."""
        return self._dht

    @property
    def may_find_first(self) -> bool:
        """Whether somebody answers in the DHT, and the first lookup of the swarm is not over."""
        return self._has_met_someone and not self._has_looked

    def get_status(self) -> Mapping[str, object]:
        """What `/status` shows of the DHT."""
        if self._dht is None:
            return {"enabled": False}
        return {
            "enabled": True,
            "found": self.num_found,
            "greeted": self.num_greeted,
            "keepers": self.num_keepers,
            **self._dht.get_status(),
        }

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._dht is not None:
            await stack.enter_async_context(self._dht)
            stack.push_async_callback(self._withdraw)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        if self._dht is None:
            return ()
        return (
            self._dht.wait_closed(),
            self._publish_for_ever(self._dht),
            self._look_for_ever(self._dht),
        )

    def _seeds(self) -> list[Endpoint]:
        """Where live peers take DHT datagrams."""
        alive = self._peers.alive(self._clock.monotonic())
        return [Endpoint(p.host, p.heartbeat.dht_port) for p in alive if p.heartbeat.dht_port]

    # -- being found -----------------------------------------------------------------

    async def _publish_for_ever(self, dht: DhtService) -> None:
        """Publish, and again in time, and whenever others would not find this node any more."""
        await dht.wait_for_contact()
        due_at = self._clock.boottime()
        while True:
            draft = self._draft()
            if draft is not None:
                dht.is_client = draft.is_unreachable
                if self._clock.boottime() >= due_at or self._has_moved(draft):
                    self.num_keepers = await self._publish(dht, draft)
                    wait_s = self._config.record_ttl_s / RENEWALS
                    wait_s = wait_s if self.num_keepers else min(wait_s, RETRY_S)
                    due_at = self._clock.boottime() + self._jittered(wait_s)
            await self._clock.sleep(min(LOOK_S, self._config.record_ttl_s / RENEWALS / 4))

    async def _publish(self, dht: DhtService, draft: DhtRecord) -> int:
        """Publish under all keys; how many others keep the record of the swarm."""
        self._published = draft
        num_keepers = await dht.publish(draft)
        await dht.publish(draft.under(Scope.NODE))
        hosted = range(draft.first_fragment, draft.first_fragment + draft.num_fragments)
        for fragment in hosted[:MAX_FRAGMENT_KEYS]:
            await dht.publish(draft.under(Scope.FRAGMENT, fragment))
        return num_keepers

    def _has_moved(self, draft: DhtRecord) -> bool:
        """Whether what was published last leads elsewhere than what would be now."""
        old = self._published
        return old is not None and _way(old) != _way(draft)

    async def _withdraw(self) -> None:
        assert self._dht is not None, "only then there is something to withdraw"
        if self._draft() is None:
            return  # another node goes on under this key
        try:
            async with asyncio.timeout(LEAVE_S):
                num_withdrawn = await self._dht.withdraw()
        except TimeoutError:
            logger.debug("dht: not all records withdrawn in %g s; they end by themselves", LEAVE_S)
        else:
            logger.debug("dht: records withdrawn from %d keepers", num_withdrawn)

    # -- finding ---------------------------------------------------------------------

    async def _look_for_ever(self, dht: DhtService) -> None:
        await dht.wait_for_contact()
        self._has_met_someone = True
        while True:
            draft = self._draft()
            if draft is not None:
                await self._look(dht, draft.swarm_id)
            self._has_looked = True
            is_alone = not self._peers.alive(self._clock.monotonic())
            wait_s = self._config.lookup_s
            wait_s = min(wait_s, ALONE_S) if is_alone else wait_s
            await self._clock.sleep(self._jittered(wait_s))

    async def _look(self, dht: DhtService, swarm_id: bytes) -> None:
        found = await dht.lookup(swarm_key(swarm_id))
        found.pop(self._peers.me, None)
        self.num_found = len(found)
        for node_id in self._choose_silent(found):
            own = await dht.lookup(node_key(swarm_id, node_id))
            found.update((id_, record) for id_, record in own.items() if id_ == node_id)
        for node_id, record in found.items():
            self._greet(node_id, record)

    def _choose_silent(self, found: Mapping[NodeId, DhtRecord]) -> list[NodeId]:
        """Peers that fell silent and are not among the found ones: they may have moved."""
        now = self._clock.monotonic()
        silent = [
            peer.node_id
            for peer in self._peers.all(now)
            if not self._peers.is_alive(peer.node_id, now)
            if not peer.heartbeat.is_leaving and peer.node_id not in found
        ]
        return self._random.sample(silent, min(len(silent), MAX_SOUGHT))

    def _greet(self, node_id: NodeId, record: DhtRecord) -> None:
        now = self._clock.monotonic()
        if self._peers.is_alive(node_id, now) or self._peers.is_banned(node_id, now):
            return
        if record.heartbeat_endpoints:
            self.num_greeted += 1
            self._greeter.greet(record.heartbeat_endpoints)

    def _jittered(self, wait_s: float) -> float:
        return wait_s * self._random.uniform(0.9, 1.1)


def make_finder(
    config: DhtConfig,
    datagrams: Datagrams,
    greeter: Greeter,
    *,
    key: NodeKey,
    record: OwnRecord,
    peers: PeerTable,
    locate: Callable[[], Endpoint],
    clock: Clock,
) -> Finder:
    """A finder with its DHT, if the settings want one.

    Args:
        config: Of the DHT.
        datagrams: Carries the DHT's.
        greeter: Greets who was found.
        key: Signs.
        record: Describes the node as it is now, and says whether it may sign anything.
        peers: Who is known.
        locate: Where others reach this node's DHT port now.
        clock: Tells the time.
    """

    def draft() -> DhtRecord | None:
        return None if record.is_mute else draft_record(record.describe(), peers)

    dht = None
    if config.enabled:
        dht = DhtService(
            config, datagrams=datagrams, signer=key, peers=peers, locate=locate, clock=clock
        )
    return Finder(dht, config, peers=peers, greeter=greeter, draft=draft, clock=clock)


def _way(record: DhtRecord) -> DhtRecord:
    """What of a record leads to its node."""
    return replace(
        record, is_training=False, available_memory_mb=0, tokens_per_s=0.0, round=0, digest=b""
    )
