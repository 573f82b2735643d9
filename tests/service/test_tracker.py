from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from aiohttp import web

from neuroswarm.discovery import tracker_client
from neuroswarm.discovery.tracker_client import TrackerClient
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.errors import AdmissionError, ConfigError
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint
from neuroswarm.web.metrics import make_registry
from neuroswarm.web.server import Pages, WebServer
from neuroswarm.wire import limits
from neuroswarm.wire.messages import Heartbeat

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
    """What a tracker client needs of a node."""

    def __init__(self, clock: FakeClock, *, host: str = "10.0.0.7", http_port: int = 7101) -> None:
        self.clock = clock
        key = NodeKey.generate()
        heartbeat = Heartbeat(SWARM, 0, 0.0, host, 8101, 9999, http_port, 1, is_training=True)
        self.record = OwnRecord(key, lambda: heartbeat)
        self.id = key.node_id
        self.peers = PeerTable(key.node_id, 5.0)
        self.num_news = 0

    def client(self, *hints: str, sealer: Sealer = SEALER) -> TrackerClient:
        return TrackerClient(
            hints,
            sealer=sealer,
            record=self.record,
            peers=self.peers,
            clock=self.clock,
            on_news=self.count_news,
        )

    def count_news(self) -> None:
        self.num_news += 1

    def known(self) -> set[bytes]:
        return {peer.node_id for peer in self.peers.all(0.0)}


def serve(handler: Callable[[bytes, str], bytes], listen: Endpoint = HERE) -> WebServer:
    pages = Pages(status=dict, peers=list, registry=make_registry(list))
    return WebServer(listen, pages, sealed={"/v1/tracker": handler})


def bare_tracker(clock: FakeClock) -> TrackerDirectory:
    peers = PeerTable(NodeKey.generate().node_id, tracker_client.REFRESH_S)
    return TrackerDirectory(peers, sealer=SEALER, clock=clock)


@pytest.fixture
def clock() -> CountedClock:
    return CountedClock()


def url(server: WebServer) -> str:
    return f"http://{server.endpoint}"


async def test_two_nodes_meet_at_a_bare_tracker(clock):
    a, b = Node(clock), Node(clock)
    async with serve(bare_tracker(clock).handle) as server, a.client(url(server)) as first:
        assert await first.wait_first_round(10.0)
        await clock.wait_sleeps(1)
        assert a.known() == set()
        async with b.client(url(server)) as second:
            assert await second.wait_first_round(10.0)
            assert b.known() == {a.id}
            assert b.num_news == 1
            assert second.observed_host == "127.0.0.1"
            await clock.wait_sleeps(2)
            await clock.advance(1.3 * tracker_client.ALONE_S)
            await clock.wait_sleeps(3)
    assert a.known() == {b.id}
    assert a.num_news == 1


async def test_a_node_is_a_tracker_and_is_found_where_it_was_asked(clock):
    """It announces loopback: it was given no hint. Its host is where the asker reached it."""
    asker = Node(clock)
    holder: list[TrackerDirectory] = []
    async with serve(lambda body, host: holder[0].handle(body, host)) as server:
        tracker = Node(clock, host="127.0.0.1", http_port=server.endpoint.port)
        holder.append(
            TrackerDirectory(tracker.peers, sealer=SEALER, clock=clock, record=tracker.record)
        )
        async with asker.client(url(server)) as client:
            assert await client.wait_first_round(10.0)
    assert asker.known() == {tracker.id}
    assert asker.peers.get(tracker.id).host_seen == "127.0.0.1"
    assert tracker.known() == {asker.id}


async def test_no_tracker_is_said_once_a_minute_and_asked_for_ever(clock, caplog):
    caplog.set_level(logging.INFO)
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        dead = url(server)
    async with node.client(dead) as client:
        assert not await client.wait_first_round(0.01)
        await clock.wait_sleeps(1)
        expected = (
            f"no tracker reachable: {dead}/v1/tracker: connection refused; training alone, retrying"
        )
        assert [r.getMessage() for r in caplog.records] == [expected]
        assert client.get_status() == [
            {"url": f"{dead}/v1/tracker", "is_answering": False, "failure": "connection refused"}
        ]
        caplog.clear()
        while clock.monotonic() < 1000.0 + 300.0:
            await next_try(clock)
        assert 4 <= len(caplog.records) <= 5
        assert {r.getMessage() for r in caplog.records} == {expected}
        async with serve(bare_tracker(clock).handle, server.endpoint):
            await next_try(clock)
            assert await client.wait_first_round(10.0)
            assert client.get_status()[0]["is_answering"] is True
    assert caplog.records[-1].getMessage() == f"tracker {dead}/v1/tracker answers: 0 peers"


async def next_try(clock: CountedClock) -> None:
    """Move on until the one client has tried again, and failed or not."""
    before = clock.num_sleeps
    await clock.advance(1.25 * tracker_client.RETRY_MAX_S)
    await clock.wait_sleeps(before + 1)


async def test_one_answering_tracker_is_enough(clock, caplog):
    caplog.set_level(logging.WARNING)
    a, b = Node(clock), Node(clock)
    directory = bare_tracker(clock)
    async with serve(directory.handle) as gone:
        dead = url(gone)
    async with serve(directory.handle) as server, a.client(url(server)) as first:
        assert await first.wait_first_round(10.0)
        async with b.client(dead, url(server)) as client:
            assert await client.wait_first_round(10.0)
            await clock.wait_sleeps(3)
            answering = [hint["is_answering"] for hint in client.get_status()]
            client.require_admission()
    assert answering == [False, True]
    assert b.known() == {a.id}
    assert not [r for r in caplog.records if "no tracker reachable" in r.getMessage()]


async def test_another_token_is_one_line_on_both_sides(clock, caplog):
    caplog.set_level(logging.INFO)
    node = Node(clock)
    directory = bare_tracker(clock)
    async with (
        serve(directory.handle) as server,
        node.client(url(server), sealer=Sealer(b"x" * 32)) as client,
    ):
        await clock.wait_sleeps(1)
        assert not await client.wait_first_round(0.01)
        await clock.advance(0.7)
        await clock.wait_sleeps(2)
        with pytest.raises(AdmissionError, match="it refuses this node's swarm token"):
            client.require_admission()
    assert directory.num_refused == 2
    here = f"tracker {url(server)}/v1/tracker: it refuses this node's swarm token"
    there = "tracker refused 127.0.0.1: another swarm token (1 refused since the last such line)"
    assert [(r.name.rpartition(".")[2], r.getMessage()) for r in caplog.records] == [
        ("tracker_server", there),
        ("tracker_client", f"{here}; give the token of its swarm"),
    ]
    assert len(directory._peers) == 0


def misbehaving(kind: str) -> Callable[[bytes, str], bytes]:
    """A tracker endpoint that answers 200 with something wrong."""
    replies = {
        "junk": b"junk",
        "long": b"x" * (limits.MAX_TRACKER_BODY_BYTES + 1),
        "sealed junk": b"",
    }

    def handle(body: bytes, host: str) -> bytes:
        return replies[kind]

    return handle


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("junk", "its answer is not sealed with this node's swarm token"),
        ("sealed junk", "its answer is not sealed with this node's swarm token"),
        ("long", f"answer too large: over {limits.MAX_TRACKER_BODY_BYTES} bytes"),
    ],
)
async def test_a_wrong_answer_is_a_failed_hint(clock, kind, failure):
    node = Node(clock)
    async with serve(misbehaving(kind)) as server, node.client(url(server)) as client:
        await clock.wait_sleeps(1)
        assert client.get_status()[0]["failure"] == failure
    assert node.known() == set()


async def test_a_reply_of_the_past_is_not_taken(clock):
    """Replies are bound to their request: what was recorded on the way is of no use."""
    node, other = Node(clock), Node(clock)
    directory = bare_tracker(clock)
    recorded: list[bytes] = []

    def handle(body: bytes, host: str) -> bytes:
        recorded.append(directory.handle(body, host))
        return recorded[0]

    async with serve(handle) as server, node.client(url(server)) as client:
        await clock.wait_sleeps(1)
        async with other.client(url(server)) as late:
            await clock.wait_sleeps(2)
            assert late.get_status()[0]["is_answering"] is False
        assert client.get_status()[0]["is_answering"] is True


async def test_a_redirect_is_not_followed(clock):
    async def handle(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/v1/elsewhere")

    app = web.Application()
    app.router.add_post("/v1/tracker", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Node(clock).client(f"127.0.0.1:{runner.addresses[0][1]}") as client:
            await clock.wait_sleeps(1)
            assert client.get_status()[0]["failure"] == "no tracker there (HTTP 307)"
    finally:
        await runner.cleanup()


async def test_an_address_that_cannot_exist_is_a_failed_hint(clock):
    async with Node(clock).client("http://256.1.1.1:7100") as client:
        await clock.wait_sleeps(1)
        assert "256.1.1.1" in str(client.get_status()[0]["failure"])


async def test_without_hints_there_is_nothing_to_wait_for(clock):
    async with Node(clock).client() as client:
        assert not await client.wait_first_round(1000.0)
        assert client.get_status() == []


def test_hints_are_checked_and_said_once(clock):
    client = Node(clock).client("http://a.example:7101", "a.example:7101", "[::1]:7101")
    assert client.hosts == ("a.example", "::1")
    with pytest.raises(ConfigError, match="no tracker address: 'ftp://a'"):
        Node(clock).client("ftp://a")
