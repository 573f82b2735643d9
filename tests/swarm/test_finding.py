"""Whole nodes that are told of nobody but a node in the DHT."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from neuroswarm.dht.exchange import NUM_SENDS
from neuroswarm.dht.service import DhtService
from neuroswarm.testing.faults import DATAGRAM, Passage, Place
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire.dht_messages import Find, decode_request
from neuroswarm.wire.dht_records import DhtRecord, fragment_key, node_key, swarm_key
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import Kind

DHT: dict[str, Any] = {
    "enabled": True,
    "refresh_s": 0.5,
    "lookup_s": 0.5,
    "timeout_s": 1.0,
    "record_ttl_s": 60.0,
}


def dht_of(member: Member) -> DhtService:
    dht = member.parts.membership.finder.dht
    assert dht is not None
    return dht


def status_of(member: Member) -> dict[str, Any]:
    return dict(member.parts.reporter.status()["dht"])  # type: ignore[call-overload]


def known_to(member: Member) -> set[NodeId]:
    return {peer.node_id for peer in member.parts.rounds.crowd.live()}


def all_know_all(*members: Member) -> bool:
    everyone = {member.node_id for member in members}
    return all(known_to(m) >= everyone - {m.node_id} for m in members)


async def find(at: Member, key: bytes) -> dict[NodeId, DhtRecord]:
    return await dht_of(at).lookup(key)


async def test_node_that_is_told_of_one_node_in_the_dht_finds_all(tmp_path: Path):
    async with Swarm(tmp_path, dht=DHT) as swarm:
        anna, bert, carl = await swarm.found("anna", "bert", "carl")
        swarm_id = anna.parts.cohort.swarm_id
        (dora,) = await swarm.start("dora", knows=(), seeds=["carl"])
        await swarm.until(lambda: all_know_all(anna, bert, carl, dora), what="all to know dora")
        await swarm.more_rounds(2)
        await swarm.until_level()
        everyone = (anna, bert, carl, dora)
        assert sum(status_of(member)["greeted"] for member in everyone) > 0
        await swarm.until(lambda: status_of(dora)["contacts"] == 3, what="contacts with all")
        await swarm.until(lambda: status_of(dora)["keepers"] == 3, what="records with all others")
        await swarm.until(lambda: status_of(dora)["found"] == 3, what="all to be found")
        found = await find(anna, node_key(swarm_id, dora.node_id))
        assert found[dora.node_id].heartbeat_endpoints == (dora.parts.carriers.heartbeat_endpoint,)
        hosts = await find(anna, fragment_key(swarm_id, 0))
        assert hosts.keys() == {m.node_id for m in (anna, bert, carl, dora)}


async def test_no_swarm_is_founded_while_the_first_lookup_of_the_dht_is_under_way(tmp_path: Path):
    # Asks again after 4 s. The seed has long answered by 2.5 s, on a busy machine too.
    dht = {**DHT, "timeout_s": 4.0 * NUM_SENDS}
    async with Swarm(tmp_path, dht=dht, rounds={"genesis_wait_s": 2.5}) as swarm:
        others = anna, *_ = await swarm.found("anna", "bert", "carl")
        await swarm.more_rounds(1)
        key = swarm_key(anna.parts.cohort.swarm_id)
        known = {member.node_id for member in others}
        asked: Counter[Place] = Counter()

        def is_lost(passage: Passage) -> bool:
            """The first time that dora asks anyone for the swarm, and till then all heartbeats."""
            statement = parse(envelope_pb2.Signed, passage.data)
            if passage.source in known:
                is_greeting = statement.kind == Kind.HEARTBEAT and passage.target not in known
                return is_greeting and max(asked.values(), default=0) < 2
            if statement.kind != Kind.DHT_REQUEST:
                return False
            if decode_request(statement.body).question != Find(key):
                return False
            asked[passage.target] += 1
            return asked[passage.target] == 1

        lookups = swarm.network.drop(method=DATAGRAM, when=is_lost)
        (dora,) = await swarm.start("dora", knows=(), seeds=["carl"])
        assert lookups.fired > 0
        assert dora.first_round > 0


async def test_halves_that_started_apart_merge_through_the_dht_alone(tmp_path: Path):
    """The halves' hints lead nowhere else; one seed across is all that joins them."""
    async with Swarm(tmp_path, dht=DHT) as swarm:
        (anna,) = await swarm.start("anna", knows=())
        (bert,) = await swarm.start("bert", knows=["anna"])
        swarm.network.drop(method=DATAGRAM, when=lambda p: is_across(p.source, p.target))
        left = {anna.node_id, bert.node_id}

        def is_across(source: object, target: object) -> bool:
            return is_cut and (source in left) != (target in left)

        is_cut = True
        (carl,) = await swarm.start("carl", knows=(), seeds=["bert"], model_seed=1)
        (dora,) = await swarm.start("dora", knows=["carl"])
        halves = (anna, bert), (carl, dora)
        for half in halves:
            await swarm.until(lambda half=half: all_know_all(*half), what="each half to be whole")
        await swarm.more_rounds(1, [anna, bert])
        await swarm.more_rounds(1, [carl, dora])
        assert not known_to(anna) & {carl.node_id, dora.node_id}
        is_cut = False
        await swarm.until(lambda: all_know_all(anna, bert, carl, dora), what="halves to merge")
        await swarm.until_level()
        await swarm.more_rounds(1)


async def test_node_that_leaves_withdraws_its_records_and_one_that_dies_does_not(tmp_path: Path):
    async with Swarm(tmp_path, dht=DHT) as swarm:
        anna, bert, carl, dora = await swarm.found("anna", "bert", "carl", "dora")
        swarm_id = anna.parts.cohort.swarm_id
        key = swarm_key(swarm_id)
        await swarm.until(lambda: all(status_of(m)["keepers"] >= 3 for m in swarm.running))
        assert (await find(anna, key)).keys() == {m.node_id for m in (anna, bert, carl, dora)}
        await dora.core.stop()
        assert (await find(anna, key)).keys() == {m.node_id for m in (anna, bert, carl)}
        assert not await find(anna, node_key(swarm_id, dora.node_id))
        await swarm.bury(carl)
        assert carl.node_id in await find(anna, key)


async def test_node_without_a_dht_is_a_peer_like_any_other(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        await swarm.more_rounds(1)
        assert status_of(anna) == {"enabled": False}
        peer = anna.parts.membership.peers.get(bert.node_id)
        assert peer is not None
        assert peer.heartbeat.dht_port == 0
