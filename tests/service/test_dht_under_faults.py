"""Thirty nodes on real sockets: a fifth of the datagrams lost, five liars, eight killed.

The sockets are real, the time is the event loop's: it jumps on when nothing is under way, so that
the same happens on a loaded machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from dht_nodes import (
    LOOPBACK,
    SEALER,
    SWARM,
    Clique,
    DhtNode,
    Replayer,
    draft_of,
    forges,
    garbles,
    key_named,
    make_node,
    says,
    withholds,
)

from neuroswarm.identity.sealing import Sealer
from neuroswarm.net.datagram import CONTEXT, DHT_CONTEXT
from neuroswarm.testing.virtual_time import LoopClock, VirtualTimeLoop
from neuroswarm.testing.waiting import until
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.dht_messages import Ping, Request
from neuroswarm.wire.dht_records import DhtRecord, Scope, fragment_key, node_key, swarm_key
from neuroswarm.wire.signed import Kind, sign

SEED = 5
NUM_NODES = 30
LIARS = (3, 9, 14, 20, 27)
KILLED = (0, 5, 8, 12, 16, 21, 24, 29)
"""The one that all others were given as their seed among them."""

HOSTS_OF_FRAGMENT = (1, 2, 5, 10, 16, 22)
LOSS = 0.2
TTL_S = 24.0
NUM_LOOKUPS = 6
"""Of each key by each of the 17 honest nodes that live: 102."""

CLOCK = LoopClock()
SETTINGS = {"timeout_s": 1.0, "refresh_s": 10.0, "record_ttl_s": TTL_S}


@dataclass
class Scene:
    """The nodes, and what their publishers do."""

    nodes: list[DhtNode]
    num_published: Counter[int] = field(default_factory=Counter)
    renewals: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    killed_at: float = 0.0

    @property
    def honest(self) -> list[DhtNode]:
        return [node for node in self.nodes if node.index not in LIARS]

    @property
    def live(self) -> list[DhtNode]:
        return [node for node in self.honest if node.index not in KILLED]

    @property
    def dead(self) -> list[DhtNode]:
        return [node for node in self.nodes if node.index in KILLED]

    def drafts(self, node: DhtNode) -> list[DhtRecord]:
        drafts = [draft_of(node.index), draft_of(node.index, Scope.NODE)]
        if node.index in HOSTS_OF_FRAGMENT:
            drafts.append(draft_of(node.index, Scope.FRAGMENT, 7))
        return drafts

    async def renew(self, node: DhtNode) -> None:
        """Publish, and again whenever a third of the time to live has passed."""
        while True:
            for draft in self.drafts(node):
                await node.service.publish(draft)
            self.num_published[node.index] += 1
            await CLOCK.sleep(TTL_S / 3)

    async def kill(self, nodes: Iterable[DhtNode]) -> None:
        for node in nodes:
            self.renewals.pop(node.index).cancel()
            await node.kill()
        self.killed_at = CLOCK.wall()


def make_liars(nodes: list[DhtNode]) -> None:
    liars = [nodes[index] for index in LIARS]
    for liar, lie in zip(
        liars,
        (withholds, forges, garbles, Replayer(), Clique(liars, liars[-1].key)),
        strict=True,
    ):
        liar.wire.tamper = lie


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    first = make_node(0, loss=LOSS, seed=SEED, clock=CLOCK, **SETTINGS)
    scene = Scene([first])
    try:
        await first.start()
        for index in range(1, NUM_NODES):
            node = make_node(
                index, (first.endpoint,), loss=LOSS, seed=SEED, clock=CLOCK, **SETTINGS
            )
            scene.nodes.append(node)
            await node.start()
        make_liars(scene.nodes)
        await until(
            lambda: all(len(node.service.table) >= 8 for node in scene.honest),
            what="everybody to know a few others",
        )
        for node in scene.honest:
            scene.renewals[node.index] = asyncio.create_task(scene.renew(node))
        await until(
            lambda: all(scene.num_published[node.index] for node in scene.honest),
            what="everybody's first publication",
        )
        yield scene
    finally:
        for task in scene.renewals.values():
            task.cancel()
        await asyncio.gather(*(node.kill() for node in scene.nodes))


@dataclass
class Tally:
    """What lookups of one key found."""

    num_lookups: int = 0
    found: Counter[NodeId] = field(default_factory=Counter)
    forged: list[DhtRecord] = field(default_factory=list)


async def look_up(
    by: list[DhtNode], key: bytes, truth: dict[NodeId, DhtRecord], rounds: int = NUM_LOOKUPS
) -> Tally:
    tally = Tally()
    for _ in range(rounds):
        for found in await asyncio.gather(*(node.service.lookup(key) for node in by)):
            tally.num_lookups += 1
            for signer, record in found.items():
                tally.found[signer] += 1
                if signer not in truth or says(record) != truth[signer]:
                    tally.forged.append(record)
    return tally


@pytest.mark.slow
@pytest.mark.timeout(900)  # some 30 s alone on two cores
def test_publishers_are_found_whatever_the_liars_say_and_the_dead_are_forgotten():
    """The theorem: a record is found if one honest keeper of it is reached; none can be made up."""

    async def tell() -> None:
        async with open_scene() as scene:
            await tell_story(scene)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(tell())


async def tell_story(scene: Scene) -> None:
    await scene.kill(scene.dead)
    swarm = {node.id: draft_of(node.index) for node in scene.honest}
    hosts = {
        node.id: draft_of(node.index, Scope.FRAGMENT, 7)
        for node in scene.honest
        if node.index in HOSTS_OF_FRAGMENT
    }
    alone = scene.live[4]
    keys = {
        swarm_key(SWARM): swarm,
        fragment_key(SWARM, 7): hosts,
        node_key(SWARM, alone.id): {alone.id: draft_of(alone.index, Scope.NODE)},
    }
    alive = {node.id for node in scene.live}
    for key, truth in keys.items():
        tally = await look_up(scene.live, key, truth)
        assert tally.num_lookups == NUM_LOOKUPS * len(scene.live)
        assert not tally.forged
        for publisher in truth.keys() & alive:
            assert tally.found[publisher] >= 0.99 * tally.num_lookups

    ends_at = scene.killed_at + TTL_S
    await until(lambda: CLOCK.wall() > ends_at + 1.0, what="the dead's records to end")
    dead = {node.id for node in scene.dead}
    for key in keys:
        tally = await look_up(scene.live, key, keys[key], rounds=1)
        assert not tally.found.keys() & dead
        assert not tally.forged
    tally = await look_up(scene.live, node_key(SWARM, scene.dead[2].id), {}, rounds=1)
    assert not tally.found

    assert all(node.wire.fired["lost"] > 0 for node in scene.nodes)
    assert all(scene.nodes[index].wire.fired["lied"] > 0 for index in LIARS)
    lost = sum(node.wire.fired["lost"] for node in scene.nodes)
    passed = sum(node.wire.num_passed for node in scene.nodes)
    assert lost / (lost + passed) == pytest.approx(LOSS, abs=0.02)
    assert max(node.wire.largest for node in scene.nodes) <= 1160  # and 28 bytes of sealing


async def test_what_is_not_sealed_and_signed_is_dropped_before_it_is_parsed():
    node, key = make_node(0), key_named("a member")
    await node.start()
    try:
        broken = sign(Kind.DHT_REQUEST, b"\xff not a request", key).to_proto()
        unsigned = envelope_pb2.Signed()
        unsigned.CopyFrom(broken)
        unsigned.signature = bytes(64)
        request = Request(bytes(16), None, None, Ping()).encode()
        sealed = {
            "bad_signature": unsigned.SerializeToString(),
            "malformed": broken.SerializeToString(),
        }
        strangers = [
            b"",
            b"\0" * 200,
            unsigned.SerializeToString(),
            Sealer(bytes(32)).seal(sealed["malformed"], DHT_CONTEXT),
            SEALER.seal(sealed["malformed"], CONTEXT),
        ]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for data in strangers:
                stranger.sendto(data, node.endpoint)
            await until(lambda: node.transport.num_dropped == len(strangers))
            assert not node.service.dropped
            for number, (reason, data) in enumerate(sealed.items(), 1):
                stranger.sendto(SEALER.seal(data, DHT_CONTEXT), node.endpoint)
                await until(lambda number=number: sum(node.service.dropped.values()) == number)
                assert node.service.dropped[reason] == 1
            stranger.sendto(SEALER.seal(request, DHT_CONTEXT), node.endpoint)
            await until(lambda: node.service.dropped["malformed"] == 2)
        assert node.service.num_answered == 0
        assert node.endpoint == Endpoint(LOOPBACK, node.endpoint.port)
    finally:
        await node.kill()
