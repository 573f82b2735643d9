from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest

from neuroswarm.clock import SystemClock
from neuroswarm.config import HeartbeatConfig
from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.heartbeat.datagram import decode_datagram, encode_datagram
from neuroswarm.heartbeat.remembered import Remembered
from neuroswarm.heartbeat.service import MAX_PASSED_ON, NEWS_BURST, HeartbeatService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import FORGET_INTERVALS, PeerTable
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.faults import DATAGRAM
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.v1 import heartbeat_pb2
from neuroswarm.values import Endpoint, NodeId, Reach
from neuroswarm.wire import limits
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, Signed, sign, verify

INTERVAL_S = 5.0
SWARM = b"s" * 32


def record_at(endpoint: Endpoint, **changes: object) -> Heartbeat:
    return replace(
        Heartbeat(SWARM, 0, 0.0, endpoint.host, 8101, endpoint.port, 7101, 1, is_training=True),
        **changes,  # type: ignore[arg-type]
    )


@dataclass
class Node:
    """One node's heartbeat service with what it needs."""

    key: NodeKey
    endpoint: Endpoint
    datagrams: MemoryDatagrams
    peers: PeerTable
    service: HeartbeatService
    heartbeat: Heartbeat
    record: OwnRecord

    @property
    def id(self) -> NodeId:
        return self.key.node_id


@dataclass
class Swarm:
    """Nodes on one network in memory, under one clock."""

    stack: AsyncExitStack
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    clock: FakeClock = field(default_factory=FakeClock)
    num_nodes: int = 0

    async def add(
        self, *hints: Node, key: NodeKey | None = None, incarnation: int = 0, **changes: object
    ) -> Node:
        self.num_nodes += 1
        endpoint = Endpoint(f"10.0.0.{self.num_nodes}", 9999)
        node = self.make(endpoint, hints, key or NodeKey.generate(), incarnation, changes)
        await self.stack.enter_async_context(node.datagrams)
        await self.stack.enter_async_context(node.service)
        return node

    def make(
        self,
        endpoint: Endpoint,
        hints: tuple[Node, ...],
        key: NodeKey,
        incarnation: int,
        changes: dict[str, object],
    ) -> Node:
        heartbeat = record_at(endpoint, **changes)
        datagrams = self.network.datagrams(endpoint, key.node_id)
        peers = PeerTable(key.node_id, INTERVAL_S)
        record = OwnRecord(key, lambda: node.heartbeat, incarnation=incarnation)
        service = HeartbeatService(
            HeartbeatConfig(interval_s=INTERVAL_S),
            datagrams=datagrams,
            record=record,
            peers=peers,
            clock=self.clock,
            hints=[hint.endpoint for hint in hints],
        )
        node = Node(key, endpoint, datagrams, peers, service, heartbeat, record)
        return node

    async def outsider(self) -> MemoryDatagrams:
        """An end that can send anything."""
        end = self.network.datagrams(Endpoint("10.9.9.9", 9999))
        return await self.stack.enter_async_context(end)

    async def settle(self) -> None:
        await self.clock.advance(0.0)

    def sees(self, node: Node) -> set[NodeId]:
        return {peer.node_id for peer in node.peers.alive(self.clock.monotonic())}


@pytest.fixture
async def swarm() -> AsyncIterator[Swarm]:
    async with AsyncExitStack() as stack:
        yield Swarm(stack)


async def test_two_nodes_know_each_other_after_one_round_trip(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    assert swarm.sees(a) == {b.id}
    assert swarm.sees(b) == {a.id}


async def test_peers_learn_of_one_another_through_a_common_one(swarm):
    a = await swarm.add()
    others = [await swarm.add(a) for _ in range(5)]
    await swarm.clock.advance(2.5 * INTERVAL_S)
    everyone = {a.id, *(node.id for node in others)}
    for node in (a, *others):
        assert swarm.sees(node) == everyone - {node.id}


async def test_the_newest_record_arrives_every_interval_and_at_once_when_asked(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    a.heartbeat = replace(a.heartbeat, round=7)
    await swarm.clock.advance(1.1 * INTERVAL_S)
    assert b.peers.get(a.id).heartbeat.round == 7
    a.heartbeat = replace(a.heartbeat, round=8)
    a.service.announce_now()
    await swarm.settle()
    assert b.peers.get(a.id).heartbeat.round == 8


async def test_an_hour_brings_a_heartbeat_every_interval(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.clock.advance(3600.0)
    expected = 3600 / INTERVAL_S
    assert abs(a.service.num_sent - expected) < 0.05 * expected
    assert abs(b.service.num_received - expected) < 0.05 * expected
    assert a.service.dropped == {}


async def test_two_lost_heartbeats_evict_nobody_and_silence_does(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    lost = swarm.network.drop(a.id, b.id, DATAGRAM, when=2)
    for _ in range(12):
        await swarm.clock.advance(0.25 * INTERVAL_S)
        assert swarm.sees(b) == {a.id}
    assert lost.fired == 2
    silence = swarm.network.drop(a.id, b.id, DATAGRAM)
    await swarm.clock.advance(3.2 * INTERVAL_S)
    assert silence.fired >= 2
    assert swarm.sees(b) == set()
    assert swarm.sees(a) == {b.id}


async def test_a_peer_that_stops_is_gone_at_once_and_is_told_nothing_more(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    await b.service.stop()
    await swarm.settle()
    assert swarm.sees(a) == set()
    told = a.service.num_sent
    await swarm.clock.advance(3 * INTERVAL_S)
    assert a.service.num_sent == told


async def test_a_stopped_service_says_and_hears_nothing(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    await swarm.settle()
    await b.service.stop()
    sent, received = b.service.num_sent, b.service.num_received
    b.service.announce_now()
    a.service.announce_now()
    await swarm.clock.advance(2 * INTERVAL_S)
    assert (b.service.num_sent, b.service.num_received) == (sent, received)


async def test_a_partition_heals_although_both_sides_forgot_the_other(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    c = await swarm.add(b)
    await swarm.clock.advance(2 * INTERVAL_S)
    cut = swarm.network.partition([a.id], [b.id, c.id])
    await swarm.clock.advance(30 * INTERVAL_S)
    assert cut.fired
    assert a.peers.get(b.id) is None
    assert c.peers.get(a.id) is None
    swarm.network.heal()
    await swarm.clock.advance(2.5 * INTERVAL_S)
    assert swarm.sees(a) == {b.id, c.id}
    assert swarm.sees(c) == {a.id, b.id}


async def test_a_restarted_peer_is_heard_at_once(swarm):
    a = await swarm.add()
    key = NodeKey.generate()
    first = await swarm.add(a, key=key)
    await swarm.clock.advance(20 * INTERVAL_S)
    await first.service.stop()
    again = await swarm.add(a, key=key, incarnation=1)
    await swarm.settle()
    assert swarm.sees(a) == {again.id}
    assert a.peers.get(again.id).heartbeat_endpoint == again.endpoint


async def test_useless_records_are_counted_by_reason_and_change_nothing(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    outsider = await swarm.outsider()
    await swarm.settle()
    good = b.peers.get(a.id).signed
    forged = replace(good, body=good.body + b"\0")
    wrong_kind = sign(Kind.SKIP, b"", NodeKey.generate())
    malformed = sign(Kind.HEARTBEAT, b"\xff", NodeKey.generate())
    too_large = sign(
        Kind.HEARTBEAT,
        record_at(outsider.endpoint, sequence=1, grpc_port=70000).encode(),
        NodeKey.generate(),
    )
    banned = NodeKey.generate()
    b.peers.ban(banned.node_id, "test", None)
    for own in (forged, wrong_kind, malformed, too_large, good):
        outsider.send(b.endpoint, encode_datagram(own, []))
    outsider.send(b.endpoint, b"\xffjunk")
    outsider.send(b.endpoint, b"")
    outsider.send(
        b.endpoint,
        encode_datagram(
            sign(Kind.HEARTBEAT, record_at(outsider.endpoint, sequence=1).encode(), banned), []
        ),
    )
    await swarm.settle()
    assert b.service.dropped == {
        "bad_signature": 1,
        "malformed": 4,
        "too_large": 1,
        "not_newer": 1,
        "banned": 1,
    }
    assert swarm.sees(b) == {a.id}


async def test_a_forged_record_among_the_heard_ones_spoils_only_itself(swarm):
    a = await swarm.add()
    outsider = await swarm.outsider()
    keys = [NodeKey.generate() for _ in range(3)]
    own, heard, forged = (
        sign(Kind.HEARTBEAT, record_at(outsider.endpoint, sequence=1).encode(), key) for key in keys
    )
    forged = replace(forged, signature=bytes(64))
    outsider.send(a.endpoint, encode_datagram(own, [forged, heard]))
    await swarm.settle()
    assert swarm.sees(a) == {keys[0].node_id, keys[1].node_id}
    assert a.service.dropped == {"bad_signature": 1}


COPIES = [(0, 0), (0, 1), (1, 0), (5, 5)]
"""Incarnations of a node and of its copy."""


def assert_one_stepped_back(a: Node, b: Node, caplog: pytest.LogCaptureFixture) -> None:
    assert sorted([a.record.is_mute, b.record.is_mute]) == [False, True]
    said = [r.getMessage() for r in caplog.records if "runs with the key of this one" in r.msg]
    assert len(said) <= 1


@pytest.mark.parametrize(("first", "second"), COPIES)
async def test_of_two_nodes_with_one_key_one_steps_back(swarm, caplog, first, second):
    key = NodeKey.generate()
    a = await swarm.add(key=key, incarnation=first)
    b = await swarm.add(a, key=key, incarnation=second)
    await swarm.clock.advance(2 * INTERVAL_S)
    assert_one_stepped_back(a, b, caplog)


@pytest.mark.parametrize(("first", "second"), COPIES)
async def test_a_third_node_shows_two_with_one_key_each_other(swarm, caplog, first, second):
    key = NodeKey.generate()
    third = await swarm.add()
    a = await swarm.add(third, key=key, incarnation=first)
    a.record.presence.settle()
    await swarm.clock.advance(INTERVAL_S)
    b = await swarm.add(third, key=key, incarnation=second)
    await swarm.clock.advance(1.2 * INTERVAL_S)
    assert (a.record.is_mute, b.record.is_mute) == (False, True)
    await swarm.clock.advance(2 * INTERVAL_S)
    assert third.peers.get(key.node_id).host == a.endpoint.host
    assert swarm.sees(third) == {key.node_id}
    assert_one_stepped_back(a, b, caplog)


async def test_of_a_settled_node_and_a_newcomer_with_its_key_the_newcomer_steps_back(swarm):
    for _ in range(8):  # the instances' order is chance
        key = NodeKey.generate()
        a = await swarm.add(key=key)
        a.record.presence.settle()
        b = await swarm.add(a, key=key)
        await swarm.clock.advance(2 * INTERVAL_S)
        assert (a.record.is_mute, b.record.is_mute) == (False, True)


async def test_a_node_restored_from_an_old_backup_is_heard_again(swarm):
    key = NodeKey.generate()
    third = await swarm.add()
    before = await swarm.add(third, key=key, incarnation=7)
    await swarm.clock.advance(INTERVAL_S)
    await before.datagrams.stop()
    await swarm.clock.advance(20 * INTERVAL_S)
    assert third.peers.get(key.node_id) is None
    again = await swarm.add(third, key=key, incarnation=2)
    await swarm.clock.advance(2 * INTERVAL_S)
    assert third.peers.get(key.node_id).host == again.endpoint.host
    assert not again.record.is_mute


async def test_replayed_records_of_earlier_lives_stop_nobody_and_are_answered_little(swarm):
    key = NodeKey.generate()
    a = await swarm.add(key=key, incarnation=9)
    friends = [await swarm.add(a) for _ in range(5)]
    outsider = await swarm.outsider()
    old = [OwnRecord(key, lambda: record_at(outsider.endpoint)) for _ in range(20)]
    sent = a.service.num_sent
    for life in old:
        life.hear(record_at(outsider.endpoint, instance=b"somebody"))
        outsider.send(a.endpoint, encode_datagram(life.make(0.0), ()))
    await swarm.settle()
    assert not a.record.is_mute
    assert a.service.num_sent - sent <= 2
    assert all(swarm.sees(friend) >= {a.id} for friend in friends)


async def test_a_peer_without_a_heartbeat_port_is_told_nothing(swarm):
    a = await swarm.add()
    tracker = sign(
        Kind.HEARTBEAT,
        record_at(Endpoint("10.0.0.9", 0), sequence=1, swarm_id=b"").encode(),
        NodeKey.generate(),
    )
    a.peers.observe(
        tracker, record_at(Endpoint("10.0.0.9", 0)), swarm.clock.monotonic(), host_seen=None
    )
    sent = a.service.num_sent
    await swarm.clock.advance(2 * INTERVAL_S)
    assert a.service.num_sent == sent


def signed_record(host: str) -> Signed:
    record = record_at(Endpoint(host, 9999), digest=b"d" * 32)
    return sign(Kind.HEARTBEAT, record.encode(), NodeKey.generate())


@pytest.mark.parametrize(("host", "num_heard"), [("10.0.0.7", 3), ("h" * 253, 1)])
def test_a_datagram_carries_what_fits(host, num_heard):
    data = encode_datagram(signed_record(host), [signed_record(host) for _ in range(5)])
    assert len(data) <= limits.MAX_DATAGRAM_BYTES
    own, heard, _ = decode_datagram(data)
    assert verify(own).kind is Kind.HEARTBEAT
    assert len(heard) == num_heard


def test_a_datagram_with_too_much_in_it_is_refused():
    small = sign(Kind.SKIP, b"", NodeKey.generate()).to_proto()
    crowded = heartbeat_pb2.HeartbeatDatagram(own=small, heard=[small] * 4)
    with pytest.raises(MessageTooLarge, match="heard records: 4"):
        decode_datagram(crowded.SerializeToString())
    with pytest.raises(MessageTooLarge, match="datagram: "):
        decode_datagram(bytes(limits.MAX_DATAGRAM_BYTES + 1))
    with pytest.raises(SchemaMismatch, match="without its sender"):
        decode_datagram(b"")


def test_the_forgotten_take_turns_and_are_bounded():
    remembered = Remembered(max_peers=3)
    ids = [NodeId(bytes([i]) * 20) for i in range(4)]
    for i, node_id in enumerate(ids):
        remembered.add(node_id, Endpoint("h", i + 1))
    assert len(remembered) == 3
    assert [e.port for e in remembered.take_turn(2)] == [2, 3]
    assert [e.port for e in remembered.take_turn(2)] == [4, 2]
    remembered.discard(ids[1])
    remembered.discard(ids[1])
    assert sorted(e.port for e in remembered.take_turn(9)) == [3, 4]


class Described:
    """Describes a node, and says when it has done so ten times."""

    def __init__(self, udp: UdpTransport) -> None:
        self.udp = udp
        self.count = 0
        self.ten_times = asyncio.Event()

    def __call__(self) -> Heartbeat:
        self.count += 1
        if self.count >= 10:
            self.ten_times.set()
        return record_at(self.udp.endpoint)


async def test_over_udp_members_find_each_other_and_another_token_stays_outside():
    async with AsyncExitStack() as stack:
        tables: list[PeerTable] = []
        hints: list[Endpoint] = []
        described: list[Described] = []
        for token in (b"k" * 32, b"k" * 32, b"x" * 32):
            key = NodeKey.generate()
            udp = UdpTransport(Sealer(token), Endpoint("127.0.0.1", 0))
            tables.append(PeerTable(key.node_id, INTERVAL_S))
            described.append(Described(udp))
            service = HeartbeatService(
                HeartbeatConfig(interval_s=0.02),
                datagrams=udp,
                record=OwnRecord(key, described[-1]),
                peers=tables[-1],
                clock=SystemClock(),
                hints=hints[:1],
            )
            await stack.enter_async_context(udp)
            await stack.enter_async_context(service)
            hints.append(udp.endpoint)
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.ten_times.wait() for each in described))
        a, b, stranger = tables
        assert [peer.node_id for peer in a.all(0.0)] == [b.me]
        assert [peer.node_id for peer in b.all(0.0)] == [a.me]
        assert len(stranger) == 0


async def test_a_flood_of_new_records_is_held_against_their_signer_alone(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    outsider = await swarm.outsider()
    await swarm.settle()
    flooder = NodeKey.generate()
    sequence = 0
    for _ in range(60):
        for _ in range(int(NEWS_BURST)):
            sequence += 1
            record = record_at(outsider.endpoint, sequence=sequence)
            own = sign(Kind.HEARTBEAT, record.encode(), flooder)
            outsider.send(b.endpoint, encode_datagram(own, []))
        await swarm.clock.advance(1.0)
    assert set(b.peers.conduct(swarm.clock.monotonic())) == {flooder.node_id}
    assert b.peers.is_banned(flooder.node_id, swarm.clock.monotonic())
    assert swarm.sees(b) == {a.id}
    assert b.service.dropped["flood"] > 0


async def test_records_sent_again_by_another_are_held_against_nobody(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    outsider = await swarm.outsider()
    await swarm.settle()
    caught = encode_datagram(b.peers.get(a.id).signed, [])
    for _ in range(30):
        for _ in range(int(NEWS_BURST)):
            outsider.send(b.endpoint, caught)
        await swarm.clock.advance(1.0)
    assert b.peers.conduct(swarm.clock.monotonic()) == {}
    assert swarm.sees(b) == {a.id}


def count_datagrams(swarm, to: Endpoint) -> list[float]:
    """When a datagram arrives at an end that is nobody's."""
    times: list[float] = []
    end = swarm.network.datagrams(to)
    end.on_datagram(lambda _data, _source: times.append(swarm.clock.monotonic()))
    return end, times


VICTIM = Endpoint("192.0.2.77", 53)
GOSSIP, GOSSIP_AT = NodeKey.generate(), Endpoint("10.9.9.9", 9999)


def passed_on(*records: Signed) -> bytes:
    """A datagram in which somebody else tells of these."""
    own = sign(Kind.HEARTBEAT, record_at(GOSSIP_AT, sequence=1).encode(), GOSSIP)
    return encode_datagram(own, records)


async def test_an_endpoint_that_was_only_announced_gets_three_datagrams_a_minute(swarm):
    a = await swarm.add()
    end, times = count_datagrams(swarm, VICTIM)
    await swarm.stack.enter_async_context(end)
    outsider = await swarm.outsider()
    keys = [NodeKey.generate() for _ in range(20)]
    began = swarm.clock.monotonic()
    for second in range(180):  # 20 identities, each with a new record every second
        for key in keys:
            record = record_at(VICTIM, sequence=second + 1)
            outsider.send(a.endpoint, passed_on(sign(Kind.HEARTBEAT, record.encode(), key)))
        await swarm.clock.advance(1.0)
    assert len(swarm.sees(a) - {GOSSIP.node_id}) == len(keys)
    for start in range(121):
        window = [t for t in times if began + start <= t < began + start + 60]
        assert len(window) <= 3
    assert times


async def test_an_announced_endpoint_is_told_at_every_interval_once_it_speaks_itself(swarm):
    a = await swarm.add()
    end, times = count_datagrams(swarm, VICTIM)
    await swarm.stack.enter_async_context(end)
    outsider = await swarm.outsider()
    key = NodeKey.generate()
    for sender, sequence in ((outsider, 1), (end, 2)):
        own = sign(Kind.HEARTBEAT, record_at(VICTIM, sequence=sequence).encode(), key)
        sender.send(a.endpoint, encode_datagram(own, []))
        await swarm.settle()
    times.clear()
    await swarm.clock.advance(10 * INTERVAL_S)
    assert len(times) >= 8


async def test_announcing_a_peers_endpoint_takes_no_heartbeats_from_it(swarm):
    a = await swarm.add()
    b = await swarm.add(a)
    outsider = await swarm.outsider()
    await swarm.settle()
    keys = [NodeKey.generate() for _ in range(8)]  # before and after the peer in order of ids
    for sequence in range(1, 60):
        for key in keys:
            own = sign(Kind.HEARTBEAT, record_at(b.endpoint, sequence=sequence).encode(), key)
            outsider.send(a.endpoint, encode_datagram(own, []))
        await swarm.clock.advance(INTERVAL_S)
        assert a.id in swarm.sees(b)
    assert len(swarm.sees(a)) == 1 + len(keys)


async def test_a_peer_that_answers_a_call_at_its_host_is_told_at_every_interval(swarm):
    a = await swarm.add()
    end, times = count_datagrams(swarm, VICTIM)
    await swarm.stack.enter_async_context(end)
    outsider = await swarm.outsider()
    key = NodeKey.generate()
    own = sign(Kind.HEARTBEAT, record_at(VICTIM, sequence=1).encode(), key)
    outsider.send(a.endpoint, passed_on(own))
    await swarm.settle()
    await swarm.clock.advance(1.0)
    a.peers.record_rtt(key.node_id, 5.0, swarm.clock.monotonic())  # called before it moved there
    assert not a.peers.get(key.node_id).is_proven_there
    a.peers.record_rtt(key.node_id, 0.5, swarm.clock.monotonic())
    times.clear()
    await swarm.clock.advance(10 * INTERVAL_S)
    assert len(times) >= 8


async def test_an_announced_endpoint_is_not_remembered_when_its_peer_falls_silent(swarm):
    a = await swarm.add()
    end, times = count_datagrams(swarm, VICTIM)
    await swarm.stack.enter_async_context(end)
    outsider = await swarm.outsider()
    own = sign(Kind.HEARTBEAT, record_at(VICTIM, sequence=1).encode(), NodeKey.generate())
    outsider.send(a.endpoint, passed_on(own))
    await swarm.settle()
    assert times
    await swarm.clock.advance((FORGET_INTERVALS + 2) * INTERVAL_S)
    assert len(a.peers) == 0
    times.clear()
    await swarm.clock.advance(600.0)
    assert times == []


async def test_a_peer_behind_a_nat_is_told_where_it_sends_from(swarm):
    a = await swarm.add()
    router, times = count_datagrams(swarm, Endpoint("203.0.113.5", 41234))
    await swarm.stack.enter_async_context(router)
    inside, key = Endpoint("192.168.1.7", 9999), NodeKey.generate()
    there, told = count_datagrams(swarm, inside)
    await swarm.stack.enter_async_context(there)
    for sequence in range(1, 20):
        own = sign(Kind.HEARTBEAT, record_at(inside, sequence=sequence).encode(), key)
        router.send(a.endpoint, encode_datagram(own, []))
        await swarm.clock.advance(INTERVAL_S)
    assert len(times) >= 18
    assert told == []
    assert a.peers.get(key.node_id).announced_endpoint == inside


async def test_a_new_way_through_a_nat_is_taken_with_the_next_heartbeat(swarm):
    a = await swarm.add()
    inside, key = Endpoint("192.168.1.7", 9999), NodeKey.generate()
    for sequence, port in enumerate((41234, 41999), start=1):
        router, times = count_datagrams(swarm, Endpoint("203.0.113.5", port))
        await swarm.stack.enter_async_context(router)
        own = sign(Kind.HEARTBEAT, record_at(inside, sequence=sequence).encode(), key)
        router.send(a.endpoint, encode_datagram(own, []))
        await swarm.clock.advance(1.2 * INTERVAL_S)
        assert times


async def test_a_relay_passes_on_the_heartbeats_of_those_that_cannot_reach_one_another(swarm):
    relay = await swarm.add()
    closed = [await swarm.add(relay, reach=Reach.CLOSED, relays=(relay.id,)) for _ in range(12)]
    for node in closed:
        for other in closed:
            if node is not other:
                swarm.network.drop(node.id, other.id, DATAGRAM)
    await swarm.clock.advance(2.5 * INTERVAL_S)
    everybody = {node.id for node in (relay, *closed)}
    for _ in range(10):
        await swarm.clock.advance(INTERVAL_S)
        for node in closed:
            assert swarm.sees(node) == everybody - {node.id}


async def test_what_is_passed_on_to_one_peer_is_bounded(swarm):
    relay = await swarm.add()
    end, times = count_datagrams(swarm, Endpoint("10.9.9.8", 9999))
    await swarm.stack.enter_async_context(end)
    keys = [NodeKey.generate() for _ in range(3 * MAX_PASSED_ON + 30)]
    for key in keys:
        record = record_at(VICTIM, sequence=1, reach=Reach.CLOSED)
        relay.peers.observe(
            sign(Kind.HEARTBEAT, record.encode(), key), record, swarm.clock.monotonic(),
            host_seen=None,
        )  # fmt: skip
    client = record_at(end.endpoint, sequence=1, reach=Reach.CLOSED, relays=(relay.id,))
    end.send(
        relay.endpoint,
        encode_datagram(sign(Kind.HEARTBEAT, client.encode(), NodeKey.generate()), []),
    )
    await swarm.settle()
    times.clear()
    relay.service.announce_now()
    await swarm.settle()
    assert len(times) == 1 + MAX_PASSED_ON


async def test_a_node_behind_a_nat_keeps_its_way_out_open_whatever_the_interval(swarm):
    end, times = count_datagrams(swarm, Endpoint("10.9.9.8", 9999))
    await swarm.stack.enter_async_context(end)
    datagrams = swarm.network.datagrams(Endpoint("10.9.9.7", 9999))
    record = OwnRecord(NodeKey.generate(), lambda: record_at(VICTIM, reach=Reach.CLOSED))
    service = HeartbeatService(
        HeartbeatConfig(interval_s=3600),
        datagrams=datagrams,
        record=record,
        peers=PeerTable(record.node_id, 3600),
        clock=swarm.clock,
        hints=[end.endpoint],
    )
    await swarm.stack.enter_async_context(datagrams)
    await swarm.stack.enter_async_context(service)
    await swarm.clock.advance(600.0)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert max(pauses) < 25.0
