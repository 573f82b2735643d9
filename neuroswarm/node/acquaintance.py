"""How a node finds others and is found by them, as one part: hints, addresses, memory.

Knows the order in which they start, and nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config.sections import NetworkConfig
from neuroswarm.discovery.announce import make_finder
from neuroswarm.discovery.hint import read_hints
from neuroswarm.discovery.lookup import CachedLookup, Lookup
from neuroswarm.discovery.search import Search
from neuroswarm.discovery.tracker_asker import TrackerAsker
from neuroswarm.discovery.whereabouts import Whereabouts
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.remembering import Rememberer
from neuroswarm.service import Service

PEERS_FILE = "peers.json"
"""In the state folder: the peers of last time."""


class Acquaintance(Service):
    """Started after the heartbeats, which greet whomever it finds.

    `whereabouts` is started by itself, before them: the first heartbeat says where this node is.
    """

    name = "acquaintance"

    def __init__(self, whereabouts: Whereabouts, search: Search, memory: Rememberer) -> None:
        super().__init__()
        self.whereabouts = whereabouts
        self.search = search
        self.memory = memory

    @property
    def may_find(self) -> bool:
        """Whether there is anything to find others by; once it is started."""
        return self.search.has_hints or self.memory.num_known > 0

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.memory)
        await stack.enter_async_context(self.search)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self.memory.wait_closed(), self.search.wait_closed())


def make_acquaintance(
    network: NetworkConfig,
    folder: Path,
    *,
    sealer: Sealer,
    record: OwnRecord,
    peers: PeerTable,
    heartbeat: HeartbeatService,
    lookup: Lookup,
    interval_s: float,
    clock: Clock,
) -> Acquaintance:
    """Wire it up.

    Args:
        network: Hints, and where the node listens.
        folder: State folder, where peers are remembered.
        sealer: Holds the swarm's datagram key.
        record: Makes this node's signed heartbeats.
        peers: Where those found go.
        heartbeat: Greets them.
        lookup: Finds the addresses of names.
        interval_s: Seconds between two looks at this machine's addresses: one heartbeat.
        clock: Tells the time and waits.

    Raises:
        ConfigError: a hint is no address, or an announced host is none.
    """
    search = Search(
        read_hints(network.trackers, network.peers),
        asker=TrackerAsker(sealer=sealer, record=record, lookup=lookup, clock=clock),
        greeter=heartbeat,
        peers=peers,
        lookup=lookup,
        clock=clock,
    )
    on_change: Callable[[], None] = heartbeat.announce_now
    find = make_finder(
        network.host, network.announce_host, search.hosts, lookup=CachedLookup(lookup, clock)
    )
    whereabouts = Whereabouts(find, clock=clock, interval_s=interval_s, on_change=on_change)
    memory = Rememberer(folder / PEERS_FILE, peers=peers, heartbeat=heartbeat, clock=clock)
    return Acquaintance(whereabouts, search, memory)
