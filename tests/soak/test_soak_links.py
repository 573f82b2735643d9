"""The soak run's bad network, over the in-memory one: what is struck never comes back."""

from __future__ import annotations

import asyncio

import pytest
from soak_links import BadDatagrams, BadRpc, Links, Orders

from neuroswarm.errors import PeerUnreachable
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.values import Endpoint, NodeId, PeerAddress

ALICE, BOB = NodeId(b"a" * 20), NodeId(b"b" * 20)
HERE, THERE = Endpoint("alice", 1), Endpoint("bob", 2)
TIMEOUT_S = 0.2


async def serve(answered: list[bytes]):
    """Bob answers on an in-memory network; Alice's bad end of it."""
    network, links = MemoryNetwork(0), Links(0)
    bob = network.rpc(BOB, THERE)

    async def answer(_caller: NodeId, request: bytes) -> bytes:
        answered.append(request)
        return request

    bob.serve_unary("Some/Call", answer)
    alice = network.rpc(ALICE, HERE)
    return bob, alice, BadRpc(alice, links), links


async def try_call(bad: BadRpc) -> float | None:
    """Seconds until the call failed; None if it was answered."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        await bad.call(PeerAddress(BOB, THERE), "Some/Call", b"x", timeout_s=TIMEOUT_S)
    except PeerUnreachable:
        return loop.time() - began
    return None


@pytest.mark.parametrize(
    ("orders", "counted", "num_answered"),
    [
        (Orders(), "calls", 1),
        (Orders(blocked=frozenset({2})), "calls blocked", 0),
        (Orders(loss=1.0), "calls lost", 0),
        (Orders(timeouts=1.0), "timeouts forced", 1),
    ],
    ids=["none", "blocked", "lost", "late"],
)
async def test_a_struck_call_runs_into_its_deadline(
    orders: Orders, counted: str, num_answered: int
):
    answered: list[bytes] = []
    bob, alice, bad, links = await serve(answered)
    async with bob, alice:
        links.orders = orders
        took_s = await try_call(bad)
    assert len(answered) == num_answered
    assert links.counts[counted] == 1
    if orders == Orders():
        assert took_s is None
    else:
        assert took_s is not None
        assert took_s > 0.9 * TIMEOUT_S


async def test_a_partition_that_begins_meanwhile_keeps_the_answer_back():
    bob, alice, bad, links = await serve([])
    async with bob, alice:
        links.orders = Orders()
        call = asyncio.ensure_future(try_call(bad))
        await asyncio.sleep(0)
        links.orders = Orders(blocked=frozenset({2}))
        assert await call is not None
    assert links.counts["replies blocked"] == 1


async def test_datagrams_are_blocked_both_ways():
    network, links = MemoryNetwork(0), Links(0)
    bob, alice = network.datagrams(THERE, BOB), network.datagrams(HERE, ALICE)
    carol = network.datagrams(Endpoint("carol", 3), NodeId(b"c" * 20))
    bad = BadDatagrams(alice, links)
    heard: list[bytes] = []
    came = asyncio.Event()

    def note(data: bytes, _source: Endpoint) -> None:
        heard.append(data)
        came.set()

    for end in (bad, bob):
        end.on_datagram(note)
    async with bob, alice, carol:
        links.orders = Orders(blocked=frozenset({THERE.port}))
        bad.send(THERE, b"out")
        bob.send(HERE, b"in")
        carol.send(HERE, b"from another place")
        async with asyncio.timeout(5):
            await came.wait()
    assert heard == [b"from another place"]
    assert links.counts["datagrams blocked"] == 2


def test_orders_are_read_from_json():
    values = {"blocked": [5, 6], "loss": 0.1, "timeouts": 0.3, "slow_state_s": 2.0}
    assert Orders.parse(values) == Orders(frozenset({5, 6}), 0.1, 0.3, 2.0)
