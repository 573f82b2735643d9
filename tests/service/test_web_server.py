from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest

from neuroswarm.discovery.announce import route_to
from neuroswarm.errors import BadSignature, ConfigError, PeerError, SchemaMismatch
from neuroswarm.values import Endpoint
from neuroswarm.web.connections import MAX_CONNECTIONS
from neuroswarm.web.metrics import Measured, make_registry, measure_mapping
from neuroswarm.web.server import MAX_IN_FLIGHT, Pages, WebServer
from neuroswarm.wire import limits

HERE = Endpoint("127.0.0.1", 0)
STATUS = {"round": 3, "loss": float("nan"), "digest": b"\x01\x02", "network": {"bytes_sent": 5}}
PRIVATE = ("/", "/status", "/peers", "/metrics")


class Node:
    """What a node gives its web server; readiness can be switched."""

    def __init__(self) -> None:
        self.is_ready = True
        self.bodies: list[tuple[bytes, str]] = []

    def pages(self) -> Pages:
        registry = make_registry(
            lambda: [
                Measured("neuroswarm_round", 3.0, "Outer state held"),
                Measured("neuroswarm_bytes_total", 5.0, "Bytes", (("plane", "grpc"),)),
                Measured("neuroswarm_bytes_total", 7.0, "Bytes", (("plane", "heartbeat"),)),
            ]
        )
        return Pages(
            status=lambda: STATUS,
            peers=lambda: [{"node_id": "ab", "round": 3}],
            registry=registry,
            is_ready=lambda: self.is_ready,
        )

    def track(self, body: bytes, host: str) -> bytes:
        self.bodies.append((body, host))
        if body == b"other token":
            raise BadSignature("sealed with another key")
        if body == b"junk":
            raise SchemaMismatch("not a TrackerRequest")
        if body == b"again":
            raise PeerError("too many tracker requests")
        return b"sealed " + body


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def get(
    http: aiohttp.ClientSession, endpoint: Endpoint, path: str, **headers: str
) -> tuple[int, str]:
    async with http.get(f"http://{endpoint}{path}", headers=headers) as answer:
        return answer.status, await answer.text()


async def post(http: aiohttp.ClientSession, endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
    async with http.post(f"http://{endpoint}/v1/tracker", data=body) as answer:
        return answer.status, await answer.read()


async def test_health_follows_the_node(node, http):
    async with WebServer(HERE, node.pages()) as server:
        assert server.endpoint.port != 0
        assert await get(http, server.endpoint, "/livez") == (200, "ok\n")
        assert await get(http, server.endpoint, "/readyz") == (200, "ok\n")
        node.is_ready = False
        assert await get(http, server.endpoint, "/readyz") == (503, "not ready\n")
        assert (await get(http, server.endpoint, "/livez"))[0] == 200


async def test_status_and_peers_are_strict_json(node, http):
    async with WebServer(HERE, node.pages()) as server:
        status = json.loads((await get(http, server.endpoint, "/status"))[1])
        peers = json.loads((await get(http, server.endpoint, "/peers"))[1])
    assert status == {"round": 3, "loss": None, "digest": "0102", "network": {"bytes_sent": 5}}
    assert peers == [{"node_id": "ab", "round": 3}]


async def test_metrics_are_prometheus_text(node, http):
    async with WebServer(HERE, node.pages()) as server:
        text = (await get(http, server.endpoint, "/metrics"))[1]
    lines = text.splitlines()
    assert "neuroswarm_round 3.0" in lines
    assert "# TYPE neuroswarm_bytes_total counter" in lines
    assert 'neuroswarm_bytes_total{plane="grpc"} 5.0' in lines
    assert 'neuroswarm_bytes_total{plane="heartbeat"} 7.0' in lines


async def test_the_dashboard_is_one_page_that_loads_nothing_from_elsewhere(node, http):
    async with (
        WebServer(HERE, node.pages()) as server,
        http.get(f"http://{server.endpoint}/") as answer,
    ):
        page = await answer.text()
        assert answer.content_type == "text/html"
        assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert page.startswith("<!doctype html>")
    assert "foreign_contributions_used" in page
    for foreign in ("http://", "https://", "src=", "@import", "innerHTML"):
        assert foreign not in page


@pytest.mark.parametrize("path", PRIVATE)
async def test_a_foreign_host_name_in_the_request_opens_nothing(node, http, path):
    async with WebServer(HERE, node.pages()) as server:
        port = server.endpoint.port
        assert (await get(http, server.endpoint, path, Host=f"evil.example:{port}"))[0] == 403
        assert (await get(http, server.endpoint, path, Host=f"localhost:{port}"))[0] == 200
        assert (await get(http, server.endpoint, path, Host="[::1]"))[0] == 200


@pytest.mark.parametrize("is_open", [False, True])
async def test_other_machines_get_health_and_tracker_only_unless_open(node, http, is_open):
    """A caller that reaches the server at a non-loopback address is another machine to it."""
    address = route_to("192.0.2.1")
    if address is None:
        pytest.skip("this machine has no address but loopback")
    async with WebServer(
        Endpoint("0.0.0.0", 0), node.pages(), sealed={"/v1/tracker": node.track}, is_open=is_open
    ) as server:
        remote = Endpoint(address, server.endpoint.port)
        for path in PRIVATE:
            assert (await get(http, remote, path))[0] == (200 if is_open else 403)
        for path in ("/livez", "/readyz"):
            assert (await get(http, remote, path))[0] == 200
        assert await post(http, remote, b"hello") == (200, b"sealed hello")
        assert node.bodies == [(b"hello", address)]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"fine", 200), (b"other token", 403), (b"junk", 400), (b"again", 429)],
)
async def test_the_trackers_verdict_becomes_a_status(node, http, body, status):
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        assert (await post(http, server.endpoint, body))[0] == status
        assert node.bodies == [(body, "127.0.0.1")]


async def test_a_body_above_the_limit_never_reaches_the_tracker(node, http):
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        body = b"x" * (limits.MAX_TRACKER_BODY_BYTES + 1)
        assert (await post(http, server.endpoint, body))[0] == 413
        assert node.bodies == []


async def test_a_packed_body_stays_packed(node, http):
    packed = gzip.compress(bytes(limits.MAX_TRACKER_BODY_BYTES))
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        url, headers = f"http://{server.endpoint}/v1/tracker", {"Content-Encoding": "gzip"}
        async with http.post(url, data=packed, headers=headers) as answer:
            assert answer.status == 200
        assert node.bodies == [(packed, "127.0.0.1")]


@pytest.mark.parametrize(
    "request_head",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/tracker HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/tracker HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["tls", "version", "no-host", "long", "length", "chunk"],
)
async def test_malformed_requests_are_refused_without_a_word_in_the_log(node, caplog, request_head):
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        reader, writer = await asyncio.open_connection(*server.endpoint)
        writer.write(request_head)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_caller_that_leaves_in_the_middle_of_a_body_leaves_no_word_in_the_log(
    node, http, caplog
):
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        _, writer = await asyncio.open_connection(*server.endpoint)
        writer.write(b"POST /v1/tracker HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhe")
        await writer.drain()
        writer.close()
        assert (await get(http, server.endpoint, "/livez"))[0] == 200
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_bug_in_a_page_is_told_in_the_log(http, caplog):
    def fail() -> object:
        raise KeyError("a bug")

    async with WebServer(HERE, Pages(fail, fail, make_registry(list))) as server:
        assert (await get(http, server.endpoint, "/status"))[0] == 500
    assert any(r.exc_info and r.exc_info[0] is KeyError for r in caplog.records)


async def test_connections_that_say_nothing_give_way_to_new_ones(node, http):
    async with WebServer(HERE, node.pages()) as server:
        idle = [await asyncio.open_connection(*server.endpoint) for _ in range(MAX_CONNECTIONS)]
        assert (await get(http, server.endpoint, "/livez"))[0] == 200
        async with asyncio.timeout(5):
            assert await idle[0][0].read() == b""
        for _, writer in idle:
            writer.close()


async def test_without_a_tracker_there_is_none(node, http):
    async with WebServer(HERE, node.pages()) as server:
        assert (await post(http, server.endpoint, b"hello"))[0] == 404
        async with http.post(f"http://{server.endpoint}/status") as answer:
            assert answer.status == 405


async def test_a_port_in_use_is_named(node):
    async with WebServer(HERE, node.pages()) as first:
        second = WebServer(first.endpoint, node.pages())
        with pytest.raises(ConfigError, match=f"port in use: {first.endpoint.port} "):
            await second.start()


async def test_stopping_frees_the_port(node):
    async with WebServer(HERE, node.pages()) as first:
        endpoint = first.endpoint
    async with WebServer(endpoint, node.pages()) as second:
        assert second.endpoint == endpoint


async def test_slow_tracker_requests_turn_away_their_like_but_not_health(node, http):
    async with WebServer(HERE, node.pages(), sealed={"/v1/tracker": node.track}) as server:
        head = b"POST /v1/tracker HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
        waiting = []
        for _ in range(MAX_IN_FLIGHT):
            reader, writer = await asyncio.open_connection(*server.endpoint)
            writer.write(head)
            waiting.append((reader, writer))
        async with asyncio.timeout(5):
            while (await post(http, server.endpoint, b"quick"))[0] != 503:
                pass
        assert (await get(http, server.endpoint, "/livez"))[0] == 200
        for reader, writer in waiting:
            writer.write(b"hello")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        assert (await post(http, server.endpoint, b"quick"))[0] == 200


def test_a_nested_mapping_becomes_flat_numbers():
    values = {"round": 3, "name": "a", "net": {"bytes_sent": 5, "is_up": True}, "none": None}
    found = {m.name: m.value for m in measure_mapping("neuroswarm", values)}
    assert found == {
        "neuroswarm_round": 3.0,
        "neuroswarm_net_bytes_sent": 5.0,
        "neuroswarm_net_is_up": 1.0,
    }
