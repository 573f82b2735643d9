"""How a node finds others and is found by them, as one part: hints, addresses, memory.

Knows the order in which they start, and nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config.sections import NetworkConfig
from neuroswarm.discovery.announce import find_lan_hosts, make_finder
from neuroswarm.discovery.hint import read_hints
from neuroswarm.discovery.host_names import CachedLookup, Lookup
from neuroswarm.discovery.lan import LanScout, LanSelf
from neuroswarm.discovery.peers_file import PEERS_FILE
from neuroswarm.discovery.search import Search
from neuroswarm.discovery.sources import looks_on_lan
from neuroswarm.discovery.tracker_asker import TrackerAsker
from neuroswarm.discovery.whereabouts import Whereabouts
from neuroswarm.hardware.container import read_container
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.remembering import Rememberer
from neuroswarm.service import Service

LAN_WAIT_S = 2.0
"""At most so long a node with nothing but its local network waits for an answer there."""


class Acquaintance(Service):
    """Started after the heartbeats, which greet whomever it finds.

    `whereabouts` is started by itself, before them: the first heartbeat says where this node is.
    """

    name = "acquaintance"

    def __init__(
        self,
        whereabouts: Whereabouts,
        search: Search,
        memory: Rememberer,
        lan: LanScout | None = None,
    ) -> None:
        super().__init__()
        self.whereabouts = whereabouts
        self.search = search
        self.memory = memory
        self.lan = lan
        """None where nobody is looked for on the local network."""

    def choose_wait_s(self, genesis_wait_s: float) -> float:
        """How long to wait for a swarm before one is founded; once this is started.

        Args:
            genesis_wait_s: For the answer to a hint.
        """
        if self.search.has_hints or self.memory.num_known > 0:
            return genesis_wait_s
        return 0.0 if self.lan is None else min(genesis_wait_s, LAN_WAIT_S)

    def get_status(self) -> dict[str, object]:
        """What leads this node to others."""
        return {
            "hints": self.search.get_status(),
            "found_on_lan": None if self.lan is None else self.lan.num_found,
            "remembered_peers": self.memory.num_known,
        }

    async def _open(self, stack: AsyncExitStack) -> None:
        for part in self._parts:
            await stack.enter_async_context(part)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [part.wait_closed() for part in self._parts]

    @property
    def _parts(self) -> list[Service]:
        parts: list[Service] = [self.memory, self.search]
        return parts if self.lan is None else [*parts, self.lan]


def make_acquaintance(
    network: NetworkConfig,
    folder: Path,
    *,
    tokens: TokenRing,
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
        tokens: The swarm's token, and others accepted.
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
        asker=TrackerAsker(sealer=tokens.sealer, record=record, lookup=lookup, clock=clock),
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
    lan = _make_lan(network, tokens, record=record, heartbeat=heartbeat, clock=clock)
    return Acquaintance(whereabouts, search, memory, lan)


def _make_lan(
    network: NetworkConfig,
    tokens: TokenRing,
    *,
    record: OwnRecord,
    heartbeat: HeartbeatService,
    clock: Clock,
) -> LanScout | None:
    """The scout; None where it is not wanted, or cannot find or be of use to anybody."""
    if not looks_on_lan(network, has_own_network=read_container().has_own_network):
        return None

    def describe() -> LanSelf:
        port = record.describe().heartbeat_port
        return LanSelf(record.node_id, tokens.fingerprints, port)

    find = partial(find_lan_hosts, network.host)
    return LanScout(describe, find, greeter=heartbeat, clock=clock)
