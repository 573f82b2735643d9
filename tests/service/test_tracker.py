from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest
from aiohttp import web
from search_scene import SEALER, CountedClock, Node, bare_tracker, next_try, serve, url

from neuroswarm.discovery import search
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.errors import AdmissionError, ConfigError
from neuroswarm.identity.sealing import Sealer
from neuroswarm.values import Endpoint
from neuroswarm.web import early
from neuroswarm.wire import limits


@pytest.fixture
def clock() -> CountedClock:
    return CountedClock()


async def test_two_nodes_meet_at_a_bare_tracker(clock):
    a, b = Node(clock), Node(clock)
    async with serve(bare_tracker(clock).handle) as server, a.search(url(server)) as first:
        assert await first.wait_first_answer(10.0)
        await clock.wait_sleeps(1)
        assert a.known() == set()
        async with b.search(url(server)) as second:
            assert await second.wait_first_answer(10.0)
            assert b.known() == {a.id}
            assert b.num_news == 1
            assert second.observed_host == "127.0.0.1"
            await clock.wait_sleeps(2)
            await clock.advance(1.3 * search.ALONE_S)
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
        async with asker.search(url(server)) as client:
            assert await client.wait_first_answer(10.0)
    assert asker.known() == {tracker.id}
    assert asker.peers.get(tracker.id).host_seen == "127.0.0.1"
    assert tracker.known() == {asker.id}


async def test_no_tracker_is_said_once_a_minute_and_asked_for_ever(clock, caplog):
    caplog.set_level(logging.INFO)
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        dead = url(server)
    async with node.search(dead) as client:
        assert not await client.wait_first_answer(0.01)
        await clock.wait_sleeps(1)
        expected = (
            f"nobody found yet: tracker {dead}/v1/tracker: connection refused; "
            "training alone, retrying"
        )
        assert [r.getMessage() for r in caplog.records] == [expected]
        assert client.get_status() == [
            {
                "hint": f"tracker {dead}/v1/tracker",
                "addresses": 0,
                "is_answering": False,
                "failure": "connection refused",
            }
        ]
        caplog.clear()
        while clock.monotonic() < 1000.0 + 300.0:
            await next_try(clock)
        assert 4 <= len(caplog.records) <= 5
        assert {r.getMessage() for r in caplog.records} == {expected}
        async with serve(bare_tracker(clock).handle, server.endpoint):
            await next_try(clock)
            assert await client.wait_first_answer(10.0)
            assert client.get_status()[0]["is_answering"] is True
    assert caplog.records[-1].getMessage() == f"tracker {dead}/v1/tracker answers: 0 peers"


async def test_a_tracker_that_answers_no_tls_is_told_so(clock):
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        https = url(server).replace("http://", "https://")
        async with node.search(https) as client:
            await clock.wait_sleeps(1)
            (status,) = client.get_status()
    assert status["failure"] == "it does not answer TLS (try http:// instead of https://)"


async def test_one_answering_tracker_is_enough(clock, caplog):
    caplog.set_level(logging.WARNING)
    a, b = Node(clock), Node(clock)
    directory = bare_tracker(clock)
    async with serve(directory.handle) as gone:
        dead = url(gone)
    async with serve(directory.handle) as server, a.search(url(server)) as first:
        assert await first.wait_first_answer(10.0)
        async with b.search(dead, url(server)) as client:
            assert await client.wait_first_answer(10.0)
            await clock.wait_sleeps(3)
            answering = [hint["is_answering"] for hint in client.get_status()]
            client.require_admission()
    assert answering == [False, True]
    assert b.known() == {a.id}
    assert not [r for r in caplog.records if "nobody found" in r.getMessage()]


async def test_another_token_is_one_line_on_both_sides(clock, caplog):
    caplog.set_level(logging.INFO)
    node = Node(clock)
    directory = bare_tracker(clock)
    async with (
        serve(directory.handle) as server,
        node.search(url(server), sealer=Sealer(b"x" * 32)) as client,
    ):
        await clock.wait_sleeps(1)
        assert not await client.wait_first_answer(0.01)
        await clock.advance(0.7)
        await clock.wait_sleeps(2)
        with pytest.raises(AdmissionError, match="it refuses this node's swarm token"):
            client.require_admission()
    assert directory.num_refused == 2
    here = f"tracker {url(server)}/v1/tracker: it refuses this node's swarm token"
    there = "tracker refused 127.0.0.1: another swarm token (1 refused since the last such line)"
    assert [(r.name.rpartition(".")[2], r.getMessage()) for r in caplog.records] == [
        ("tracker_server", there),
        ("search", f"{here}; give the token of its swarm"),
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
    async with serve(misbehaving(kind)) as server, node.search(url(server)) as client:
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

    async with serve(handle) as server, node.search(url(server)) as client:
        await clock.wait_sleeps(1)
        async with other.search(url(server)) as late:
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
        async with Node(clock).search(f"127.0.0.1:{runner.addresses[0][1]}") as client:
            await clock.wait_sleeps(1)
            assert client.get_status()[0]["failure"] == "no tracker there (HTTP 307)"
    finally:
        await runner.cleanup()


async def test_a_node_that_still_loads_is_no_tracker_yet(clock):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with early.answering(Endpoint("127.0.0.1", port)):
        async with Node(clock).search(f"127.0.0.1:{port}") as client:
            await clock.wait_sleeps(1)
            said = client.get_status()[0]["failure"]
            assert said == "it is starting, or busy (HTTP 503)"


async def test_a_name_that_cannot_exist_is_a_failed_hint(clock):
    async with Node(clock).search("http://nobody.invalid:7100") as client:
        await clock.wait_sleeps(1)
        assert "nobody.invalid" in str(client.get_status()[0]["failure"])


async def test_without_hints_there_is_nothing_to_wait_for(clock):
    async with Node(clock).search() as client:
        assert not await client.wait_first_answer(1000.0)
        assert client.get_status() == []


def test_hints_are_checked_and_said_once(clock):
    client = Node(clock).search("http://a.example:7101", "a.example:7101", "[::1]:7101")
    assert client.hosts == ("a.example", "::1")
    with pytest.raises(ConfigError, match="no tracker address: 'ftp://a'"):
        Node(clock).search("ftp://a")
