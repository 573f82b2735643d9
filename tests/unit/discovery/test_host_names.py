from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest

from neuroswarm.discovery import host_names as rules
from neuroswarm.discovery.host_names import ConnectionResolver, NameLookup
from neuroswarm.errors import PeerUnreachable


class Resolver:
    """A name server whose answers a test writes; it can be deaf."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names
        self.num_asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, host: str) -> list[str]:
        self.num_asked += 1
        self.answers.wait(30.0)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]


@pytest.mark.parametrize("address", ["10.0.0.5", "::1", "2001:db8::7"])
async def test_an_address_is_its_own_and_nobody_is_asked(address):
    resolver = Resolver()
    assert await NameLookup(resolver)(address) == (address,)
    assert resolver.num_asked == 0


async def test_all_addresses_of_a_name_are_found_anew_each_time():
    resolver = Resolver(node=["10.0.0.1", "2001:db8::1", "10.0.0.1", "fe80::1%eth0"])
    lookup = NameLookup(resolver)
    assert await lookup("node") == ("10.0.0.1", "2001:db8::1")
    resolver.names["node"] = ["10.0.0.2"]
    assert await lookup("node") == ("10.0.0.2",)


async def test_addresses_of_one_name_are_bounded():
    many = [f"10.0.{i // 250}.{i % 250}" for i in range(2 * rules.MAX_ADDRESSES)]
    assert await NameLookup(Resolver(node=many))("node") == tuple(many[: rules.MAX_ADDRESSES])


@pytest.mark.parametrize("host", ["nowhere", "a" * 64 + ".example", "x\udcff"])
async def test_an_unknown_host_is_unreachable(host):
    with pytest.raises(PeerUnreachable, match="unknown host"):
        await NameLookup(Resolver())(host)


async def test_the_machines_own_resolver_knows_localhost():
    assert set(await NameLookup()("localhost")) & {"127.0.0.1", "::1"}


async def test_a_deaf_resolver_is_given_up_and_asked_by_one_thread_only():
    resolver = Resolver(node=["10.0.0.1"])
    lookup = NameLookup(resolver, timeout_s=0.01)
    resolver.answers.clear()
    for _ in range(3):
        with pytest.raises(PeerUnreachable, match=r"no answer from DNS about node in 0\.01 s"):
            await lookup("node")
    assert resolver.num_asked == 1
    resolver.answers.set()
    assert await until_found(lookup, "node") == ("10.0.0.1",)


async def until_found(lookup: NameLookup, host: str) -> tuple[str, ...]:
    """Ask until there is an answer."""
    async with asyncio.timeout(30.0):
        while True:
            with contextlib.suppress(PeerUnreachable):
                return await lookup(host)


async def test_names_that_wait_are_bounded():
    resolver = Resolver()
    lookup = NameLookup(resolver)
    resolver.answers.clear()
    names = [f"node-{i}" for i in range(rules.MAX_PENDING)]
    waiting = asyncio.gather(*map(lookup, names), return_exceptions=True)
    await asyncio.sleep(0)
    with pytest.raises(PeerUnreachable, match="16 names wait for an answer from DNS"):
        await lookup("one-more")
    resolver.answers.set()
    assert all("unknown host" in str(error) for error in await waiting)


async def test_connections_use_the_same_look_up():
    resolver = ConnectionResolver(NameLookup(Resolver(node=["10.0.0.1", "::7"])))
    found = await resolver.resolve("node", 7101)
    assert [(f["host"], f["port"], f["family"]) for f in found] == [
        ("10.0.0.1", 7101, socket.AF_INET),
        ("::7", 7101, socket.AF_INET6),
    ]
    with pytest.raises(OSError, match="unknown host nobody"):
        await resolver.resolve("nobody")
