"""Peers found by a node's address or by a name, and what is said where nobody is found."""

from __future__ import annotations

import logging

import pytest
from search_scene import SWARM, CountedClock, Node, bare_tracker, next_try, serve, url

from neuroswarm.discovery import search
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.errors import AdmissionError, PeerUnreachable
from neuroswarm.identity.sealing import Sealer
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, sign

GONE = "127.0.0.9"


class Names:
    """A name service whose answers a test writes."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names

    async def __call__(self, host: str) -> tuple[str, ...]:
        if host[0].isdigit():
            return (host,)
        if not self.names.get(host):
            raise PeerUnreachable(f"unknown host {host}")
        return tuple(self.names[host])


@pytest.fixture
def clock() -> CountedClock:
    return CountedClock()


def hear(node: Node, other: Node, endpoint: Endpoint) -> None:
    """Let a node hear a heartbeat of another one from there."""
    beat = Heartbeat(SWARM, 1, 0.0, endpoint.host, 8101, endpoint.port, 7101, 1, is_training=True)
    signed = sign(Kind.HEARTBEAT, beat.encode(), other.key)
    assert node.peers.observe(signed, beat, node.clock.monotonic(), host_seen=endpoint.host)


async def test_a_peer_by_its_http_port_is_asked_like_a_tracker_and_greeted(clock):
    node, other = Node(clock), Node(clock)
    directory = bare_tracker(clock)
    async with serve(directory.handle) as server, other.search(url(server)) as first:
        assert await first.wait_first_answer(10.0)
        port = server.endpoint.port
        async with node.search(peers=[f"127.0.0.1:{port}"]) as second:
            assert await second.wait_first_answer(10.0)
            assert node.known() == {other.id}
            assert node.greeted == [Endpoint("127.0.0.1", port)]


async def test_a_peer_that_answers_by_datagram_only_is_met_without_an_alarm(clock, caplog):
    caplog.set_level(logging.INFO)
    node, other = Node(clock), Node(clock)
    async with serve(bare_tracker(clock).handle) as gone:
        there = gone.endpoint
    async with node.search(peers=[str(there)]) as found:
        await clock.wait_sleeps(1)
        hear(node, other, there)
        await next_try(clock, search.GREETING_S)
        assert found.get_status() == [
            {"hint": f"peer {there}", "addresses": 1, "is_answering": True, "failure": None}
        ]
    assert "nobody found yet" not in caplog.text


async def test_a_peer_that_does_not_answer_at_all_is_named(clock, caplog):
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as gone:
        there = gone.endpoint
    async with node.search(peers=[str(there)]) as found:
        await clock.wait_sleeps(1)
        assert found.get_status()[0]["failure"] is None
        await next_try(clock, search.GREETING_S)
        failure = found.get_status()[0]["failure"]
    expected = "connection refused, and no answer to UDP (a node with another token gives none)"
    assert failure == expected
    assert f"nobody found yet: peer {there}: {expected}; training alone, retrying" in caplog.text


async def test_every_address_of_a_name_is_greeted_and_followed_when_they_change(clock):
    names = Names(tasks=[GONE, "127.0.0.1"])
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        port = server.endpoint.port
        async with node.search(f"dns://tasks:{port}", lookup=names) as found:
            assert await found.wait_first_answer(30.0)
            assert set(node.greeted) == {Endpoint(GONE, port), Endpoint("127.0.0.1", port)}
            names.names["tasks"] = ["127.0.0.1", "127.0.0.2"]
            await clock.wait_sleeps(1)
            await next_try(clock)
            assert found.get_status()[0]["addresses"] == 2
            assert Endpoint("127.0.0.2", port) in node.greeted


async def test_a_name_without_an_address_is_asked_again_for_ever(clock, caplog):
    names = Names()
    node = Node(clock)
    async with (
        serve(bare_tracker(clock).handle) as server,
        node.search(f"dns://tasks:{server.endpoint.port}", lookup=names) as found,
    ):
        for _ in range(10):
            await next_try(clock)
        assert found.get_status()[0]["failure"] == "unknown host tasks"
        names.names["tasks"] = ["127.0.0.1"]
        await next_try(clock)
        assert await found.wait_first_answer(30.0)
    lines = [r.getMessage() for r in caplog.records if "nobody found yet" in r.getMessage()]
    assert 2 <= len(lines) <= 5
    assert "dns://tasks:" in lines[0]


async def test_a_nodes_own_address_behind_a_name_is_left_out(clock):
    node = Node(clock, host="127.0.0.5", http_port=7101)
    async with node.search("dns://tasks:7101", lookup=Names(tasks=["127.0.0.5"])) as found:
        await clock.wait_sleeps(1)
        assert found.get_status()[0]["failure"] == "nobody there but this node"
    assert node.greeted == []


async def test_a_peer_with_another_token_is_no_way_in(clock):
    node = Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        peer = str(server.endpoint)
        async with node.search(peers=[peer], sealer=Sealer(b"x" * 32)) as found:
            await clock.wait_sleeps(1)
            with pytest.raises(AdmissionError, match=f"peer {peer}: it refuses this node's swarm"):
                found.require_admission()


async def test_a_lost_hint_is_no_matter_while_there_are_peers(clock, caplog):
    caplog.set_level(logging.INFO)
    node, other = Node(clock), Node(clock)
    async with serve(bare_tracker(clock).handle) as server:
        search_ = node.search(url(server))
        await search_.start()
        assert await search_.wait_first_answer(10.0)
        await clock.wait_sleeps(1)
    hear(node, other, Endpoint("10.0.0.9", 9999))
    for _ in range(5):
        hear_again(node, other, clock)
        await next_try(clock)
    await search_.stop()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert sum("the peers known are enough" in r.getMessage() for r in caplog.records) == 1


def hear_again(node: Node, other: Node, clock: CountedClock) -> None:
    node.peers.touch(other.id, clock.monotonic() + 2 * search.RETRY_MAX_S)


async def test_a_node_without_hints_says_how_to_give_one_within_five_seconds(clock, caplog):
    node = Node(clock)
    async with node.search():
        await clock.wait_sleeps(1)
        await clock.advance(4.9)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("no other node is known: training alone.")
        assert all(way in line for way in ("--tracker http://", "--peer HOST", "dns://"))
        await clock.advance(1000.0)
    assert len(caplog.records) == 1


async def test_a_node_without_hints_that_is_found_says_nothing(clock, caplog):
    node, other = Node(clock), Node(clock)
    async with node.search():
        await clock.wait_sleeps(1)
        hear(node, other, Endpoint("10.0.0.9", 9999))
        await clock.advance(4.9)
    assert not caplog.records


async def test_two_nodes_that_ask_each_other_meet(clock):
    a, b = Node(clock), Node(clock)
    here = TrackerDirectory(a.peers, sealer=Sealer(b"k" * 32), clock=clock, record=a.record)
    async with serve(here.handle) as server, b.search(peers=[str(server.endpoint)]) as found:
        assert await found.wait_first_answer(10.0)
        assert b.known() == {a.id}
        assert a.known() == {b.id}
