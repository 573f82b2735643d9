"""What tests of searching for peers share: a node's part of it, trackers, a counted clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from neuroswarm.discovery import search
from neuroswarm.discovery.hint import read_hints
from neuroswarm.discovery.host_names import Lookup, NameLookup
from neuroswarm.discovery.search import Search
from neuroswarm.discovery.tracker_asker import TrackerAsker
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint
from neuroswarm.web.metrics import make_registry
from neuroswarm.web.server import Pages, WebServer
from neuroswarm.wire.heartbeats import Heartbeat

HERE = Endpoint("127.0.0.1", 0)
SEALER = Sealer(b"k" * 32)
SWARM = b"s" * 32


class CountedClock(FakeClock):
    """A clock that says when somebody has gone to sleep so many times."""

    def __init__(self) -> None:
        super().__init__()
        self.num_sleeps = 0
        self.slept = asyncio.Condition()

    async def sleep(self, duration_s: float) -> None:
        async with self.slept:
            self.num_sleeps += 1
            self.slept.notify_all()
        await super().sleep(duration_s)

    async def wait_sleeps(self, count: int) -> None:
        async with asyncio.timeout(10), self.slept:
            await self.slept.wait_for(lambda: self.num_sleeps >= count)


class Node:
    """What a search needs of a node."""

    def __init__(self, clock: FakeClock, *, host: str = "10.0.0.7", http_port: int = 7101) -> None:
        self.clock = clock
        self.key = key = NodeKey.generate()
        heartbeat = Heartbeat(SWARM, 0, 0.0, host, 8101, 9999, http_port, 1, is_training=True)
        self.record = OwnRecord(key, lambda: heartbeat)
        self.id = key.node_id
        self.peers = PeerTable(key.node_id, 5.0)
        self.num_news = 0
        self.greeted: list[Endpoint] = []

    def search(
        self,
        *trackers: str,
        peers: Sequence[str] = (),
        sealer: Sealer = SEALER,
        lookup: Lookup | None = None,
    ) -> Search:
        """A search by these hints; started by the test."""
        lookup = lookup or NameLookup()
        asker = TrackerAsker(sealer=sealer, record=self.record, lookup=lookup, clock=self.clock)
        return Search(
            read_hints(trackers, peers),
            asker=asker,
            greeter=self,
            peers=self.peers,
            lookup=lookup,
            clock=self.clock,
        )

    def announce_now(self) -> None:
        self.num_news += 1

    def greet(self, endpoints: Iterable[Endpoint], *, is_given: bool = False) -> None:
        self.greeted += endpoints

    def known(self) -> set[bytes]:
        return {peer.node_id for peer in self.peers.all(0.0)}


def serve(handler: Callable[[bytes, str], bytes], listen: Endpoint = HERE) -> WebServer:
    pages = Pages(status=dict, peers=list, registry=make_registry(list))
    return WebServer(listen, pages, sealed={"/v1/tracker": handler})


def bare_tracker(clock: FakeClock) -> TrackerDirectory:
    peers = PeerTable(NodeKey.generate().node_id, search.REFRESH_S)
    return TrackerDirectory(peers, sealer=SEALER, clock=clock)


def url(server: WebServer) -> str:
    return f"http://{server.endpoint}"


async def next_try(clock: CountedClock, wait_s: float = search.RETRY_MAX_S) -> None:
    """Move on until the one loop has tried again, and failed or not.

    Args:
        clock: Of the search.
        wait_s: Longest wait before the next try, but for chance. Time that passes while the try
            is under way ages what is known of peers.
    """
    before = clock.num_sleeps
    await clock.advance(1.25 * wait_s)
    await clock.wait_sleeps(before + 1)
