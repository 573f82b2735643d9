"""Nodes that find each other by multicast DNS, on the loopback interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import pytest
from zeroconf import IPVersion, ServiceStateChange
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from neuroswarm.clock import SystemClock
from neuroswarm.discovery import lan
from neuroswarm.discovery.lan import KIND, LanScout, LanSelf
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.waiting import until
from neuroswarm.values import Endpoint

WITHIN_S = 30.0


class Machine:
    """A node's part of multicast DNS; what it greets is kept."""

    def __init__(self, *tags: str, port: int = 9999, hosts: tuple[str, ...] = ("127.0.0.1",)):
        self.hosts = hosts
        self.node_id = NodeKey.generate().node_id
        self.greeted: set[Endpoint] = set()
        self.news = asyncio.Event()
        me = LanSelf(self.node_id, tags, port)
        self.scout = LanScout(lambda: me, self.find, greeter=self, clock=SystemClock())

    async def find(self) -> tuple[str, ...]:
        return self.hosts

    def greet(self, endpoints: Iterable[Endpoint], *, is_given: bool = False) -> None:
        assert not is_given, "nobody's word"
        self.greeted.update(endpoints)
        self.news.set()

    def announce_now(self) -> None:
        raise AssertionError("whom it finds is greeted, no more")

    async def until_greeted(self, *wanted: Endpoint) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not self.greeted >= set(wanted):
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def tag() -> str:
    """A tag that nobody else here has; the test is skipped where there is no multicast."""
    try:
        await AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only).async_close()
    except OSError as error:
        pytest.skip(f"no multicast on the loopback interface: {error}")
    return SwarmToken.new().fingerprint


async def test_two_nodes_of_one_swarm_find_each_other(tag):
    a, b = Machine(tag, port=9001), Machine(tag, port=9002)
    async with a.scout, b.scout:
        await a.until_greeted(Endpoint("127.0.0.1", 9002))
        await b.until_greeted(Endpoint("127.0.0.1", 9001))
        assert (a.scout.num_found, b.scout.num_found) == (1, 1)
    assert Endpoint("127.0.0.1", 9001) not in a.greeted


async def test_while_a_token_is_changed_both_find_each_other(tag):
    other = SwarmToken.new().fingerprint
    a, b = Machine(tag, other, port=9001), Machine(other, tag, port=9002)
    async with a.scout, b.scout:
        await a.until_greeted(Endpoint("127.0.0.1", 9002))
        await b.until_greeted(Endpoint("127.0.0.1", 9001))


async def test_nodes_of_other_swarms_are_left_alone(tag):
    a, b = Machine(tag, port=9001), Machine(tag, port=9002)
    stranger = Machine(SwarmToken.new().fingerprint, port=9003)
    async with stranger.scout, a.scout, b.scout:
        await a.until_greeted(Endpoint("127.0.0.1", 9002))
        await b.until_greeted(Endpoint("127.0.0.1", 9001))
        assert a.greeted | b.greeted == {Endpoint("127.0.0.1", p) for p in (9001, 9002)}
    assert not stranger.greeted


async def test_who_leaves_is_forgotten_and_who_comes_later_is_found(tag):
    a, b = Machine(tag, port=9001), Machine(tag, port=9002)
    async with a.scout:
        async with b.scout:
            await until(lambda: a.scout.num_found == 1)
        await until(lambda: a.scout.num_found == 0)
        c = Machine(tag, port=9003)
        async with c.scout:
            await a.until_greeted(Endpoint("127.0.0.1", 9003))


async def test_a_machine_without_a_network_says_so_once_and_tries_again(caplog):
    caplog.set_level(logging.INFO)
    clock, tried = FakeClock(), []

    async def find() -> tuple[str, ...]:
        tried.append(clock.monotonic())
        return ()

    me = LanSelf(NodeKey.generate().node_id, ("tag",), 9999)
    async with LanScout(lambda: me, find, greeter=Machine(), clock=clock):
        await clock.advance(10.5 * lan.RETRY_S)
    assert len(tried) == 11
    lines = [r.getMessage() for r in caplog.records if r.name == lan.__name__]
    assert lines == ["nobody can be looked for on the local network: no IPv4 address"]


async def test_services_of_strangers_cost_a_bounded_memory(tag):
    machine = Machine(tag)
    for i in range(2 * lan.MAX_WAITING):
        name = f"{i}.{KIND}"
        machine.scout._hear(None, KIND, name, ServiceStateChange.Added)  # type: ignore[arg-type]
    assert machine.scout._heard.qsize() == lan.MAX_WAITING


@pytest.mark.parametrize(
    ("addresses", "port"), [(["224.0.0.251"], 9999), (["255.255.255.255"], 9999), (["10.0.0.1"], 0)]
)
async def test_what_is_no_place_of_a_peer_is_not_greeted(tag, addresses, port):
    a, b = Machine(tag, port=9001), Machine(tag, port=9002)
    packed = [bytes(map(int, address.split("."))) for address in addresses]
    lie = AsyncServiceInfo(
        KIND, f"{'0' * 40}.{KIND}", port=port, addresses=packed, properties={b"swarm": tag},
        server=f"{'0' * 40}.local.",
    )  # fmt: skip
    liar = AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
    try:
        await liar.async_register_service(lie, cooperating_responders=True)
        async with a.scout, b.scout:
            await a.until_greeted(Endpoint("127.0.0.1", 9002))
            await b.until_greeted(Endpoint("127.0.0.1", 9001))
        assert {place.host for place in a.greeted | b.greeted} == {"127.0.0.1"}
    finally:
        await liar.async_close()
