"""The DHT's service over a network in memory: who gets in, who is dropped, what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from dht_nodes import SWARM, draft_of, key_named

from neuroswarm.config import DhtConfig
from neuroswarm.dht.exchange import NUM_SENDS
from neuroswarm.dht.gate import PROBES_BURST
from neuroswarm.dht.publishing import Publisher
from neuroswarm.dht.routing import MAX_STRIKES
from neuroswarm.dht.service import DhtService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_datagrams import MemoryDatagrams
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.waiting import until
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.dht_messages import (
    Answer,
    Find,
    Ping,
    Request,
    Store,
    decode_answer,
    decode_request,
    fitting,
)
from neuroswarm.wire.dht_records import DhtContact, Relay, Scope, node_key, swarm_key
from neuroswarm.wire.signed import Kind, Signed, sign

KEY = swarm_key(SWARM)
TIMEOUT_S = 0.2


@dataclass
class Node:
    key: NodeKey
    end: MemoryDatagrams
    service: DhtService
    peers: PeerTable
    announced: Endpoint
    clock: FakeClock

    @property
    def id(self) -> NodeId:
        return self.key.node_id

    def knows(self, *others: Node) -> bool:
        return all(self.service.table.get(other.id) is not None for other in others)


@dataclass
class Net:
    """Nodes with clocks of their own, which stand still unless a test moves them."""

    stack: AsyncExitStack
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    nodes: list[Node] = field(default_factory=list)

    async def add(
        self, *seeds: Node, announced: Endpoint | None = None, key: NodeKey | None = None,
        clock: FakeClock | None = None, is_client: bool = False,
    ) -> Node:  # fmt: skip
        number = len(self.nodes) + 1
        key = key or key_named("memory", number)
        endpoint = Endpoint(f"10.0.0.{number}", 8101)
        end = self.network.datagrams(endpoint, key.node_id)
        peers = PeerTable(key.node_id, 5.0)
        clock = clock or FakeClock()
        config = DhtConfig(seeds=tuple(str(s.end.endpoint) for s in seeds), timeout_s=TIMEOUT_S)
        service = DhtService(
            config, datagrams=end, signer=key, peers=peers,
            locate=lambda: node.announced, clock=clock,
        )  # fmt: skip
        node = Node(key, end, service, peers, announced or endpoint, clock)
        service.is_client = is_client
        self.nodes.append(node)
        await self.stack.enter_async_context(end)
        await self.stack.enter_async_context(service)
        return node

    async def several(self, count: int) -> list[Node]:
        """Nodes that all know each other."""
        first = await self.add()
        made = [first, *[await self.add(first) for _ in range(count - 1)]]
        await until(
            lambda: all(n.knows(*(o for o in made if o is not n)) for n in made),
            what="all to know all",
        )
        return made

    async def outsider(self, name: str, host: str = "10.9.9.9") -> Outsider:
        """A member that sends what it likes."""
        end = self.network.datagrams(Endpoint(host, 1), NodeId(key_named(name).node_id))
        outsider = Outsider(key_named(name), end)
        end.on_datagram(lambda data, _source: outsider.heard.append(data))
        await self.stack.enter_async_context(end)
        return outsider


@dataclass
class Outsider:
    key: NodeKey
    end: MemoryDatagrams
    heard: list[bytes] = field(default_factory=list)

    def send(self, to: Node, request: Request, key: NodeKey | None = None) -> None:
        signed = sign(Kind.DHT_REQUEST, request.encode(), key or self.key)
        self.end.send(to.end.endpoint, signed.to_proto().SerializeToString())

    def answers(self) -> list[Any]:
        return [decode_answer(envelope_pb2.Signed.FromString(data).body) for data in self.heard]


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with AsyncExitStack() as stack:
        yield Net(stack)


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def test_nodes_with_one_seed_come_to_know_each_other(net: Net):
    nodes = await net.several(6)
    assert {len(node.service.table) for node in nodes} == {5}


async def test_record_is_found_by_all_and_kept_by_all_of_few(net: Net):
    nodes = await net.several(5)
    draft = replace(
        draft_of(3), relays=(Relay(nodes[0].id, Endpoint("10.0.0.1", 8101)),), digest=bytes(32)
    )
    assert await nodes[3].service.publish(draft) == 4
    for node in nodes:
        found = await node.service.lookup(KEY)
        assert found.keys() == {nodes[3].id}
        assert found[nodes[3].id].relays == draft.relays


async def test_more_records_than_fit_into_a_datagram_are_all_found(net: Net):
    first = await net.add()
    nodes = [first, *[await net.add(first) for _ in range(11)]]
    await until(lambda: all(len(node.service.table) >= 8 for node in nodes))
    for number, node in enumerate(nodes):
        await node.service.publish(draft_of(number))
    for node in (nodes[0], nodes[-1]):
        assert (await node.service.lookup(KEY)).keys() == {n.id for n in nodes}


async def test_newer_record_replaces_the_older_one_everywhere(net: Net):
    nodes = await net.several(4)
    await nodes[0].service.publish(draft_of(1))
    await nodes[0].service.publish(draft_of(2))
    for node in nodes:
        assert (await node.service.lookup(KEY))[nodes[0].id].grpc_port == 1002


async def test_node_whose_clock_was_put_back_is_believed_again(net: Net):
    """Its records must be newer than those of its former life, which only its keepers know."""
    nodes = await net.several(4)
    key, clock = key_named("put back"), FakeClock(wall_s=1_700_000_000.0 + 50)
    before = await net.add(nodes[0], key=key, clock=clock)
    await until(lambda: len(before.service.table) == 4)
    assert await before.service.publish(draft_of(1)) == 4
    await before.service.stop()
    net.network.kill(before.id)
    again = await net.add(nodes[0], key=key)
    await until(lambda: len(again.service.table) >= 4)
    assert await again.service.publish(draft_of(2)) == 4
    assert (await nodes[1].service.lookup(KEY))[again.id].grpc_port == 1002


async def test_node_that_starts_in_1970_publishes_and_finds(net: Net):
    nodes = await net.several(3)
    await nodes[0].service.publish(draft_of(0))
    late = await net.add(nodes[0], clock=FakeClock(wall_s=0.0))
    await until(lambda: late.knows(*nodes))
    assert (await late.service.lookup(KEY)).keys() == {nodes[0].id}
    assert await late.service.publish(draft_of(9)) == 3
    assert (await nodes[2].service.lookup(KEY)).keys() == {nodes[0].id, late.id}


async def test_records_end_and_are_dropped(net: Net):
    nodes = await net.several(3)
    await nodes[0].service.publish(draft_of(0))
    for node in nodes:
        node.clock.set_wall(node.clock.wall() + 1801)
    assert not await nodes[1].service.lookup(KEY)
    assert len(nodes[1].service.records) == 1
    for node in nodes:
        await node.clock.advance(400)
    await until(lambda: len(nodes[1].service.records) == 0)


async def test_withdrawn_records_are_not_found_and_do_not_come_back(net: Net):
    nodes = await net.several(4)
    await nodes[0].service.publish(draft_of(0))
    await nodes[0].service.publish(draft_of(0, Scope.NODE))
    old = nodes[1].service.records.page(KEY, b"", (), nodes[1].clock.wall())
    assert await nodes[0].service.withdraw() == 6
    for node in nodes:
        assert not await node.service.lookup(KEY)
        assert not await node.service.lookup(node_key(SWARM, nodes[0].id))
    signed = await nodes[2].service.lookup_signed(KEY)
    assert signed[nodes[0].id].record.is_withdrawn
    assert signed[nodes[0].id].signed not in old


async def test_client_finds_and_publishes_but_nobody_relies_on_it(net: Net):
    nodes = await net.several(4)
    client = await net.add(nodes[0], is_client=True)
    await until(lambda: client.knows(nodes[0]))
    assert await client.service.publish(draft_of(7)) == 4
    assert (await nodes[2].service.lookup(KEY)).keys() == {client.id}
    assert not any(node.knows(client) for node in nodes)


async def test_node_that_cannot_be_reached_where_it_says_gets_into_no_table(net: Net):
    nodes = await net.several(3)
    elsewhere = await net.add(nodes[0], announced=Endpoint("10.6.6.6", 8101))
    await until(lambda: elsewhere.knows(nodes[0]))
    assert await elsewhere.service.publish(draft_of(7)) == 3
    assert (await nodes[2].service.lookup(KEY)).keys() == {elsewhere.id}
    assert not any(node.knows(elsewhere) for node in nodes)


async def test_nobody_gets_in_under_the_address_of_another(net: Net):
    """A member names a victim's endpoint as its own: the victim answers as itself."""
    nodes = await net.several(3)
    liar = await net.outsider("liar")
    await nodes[0].clock.advance(31)
    contact = sign(Kind.DHT_CONTACT, DhtContact(nodes[1].end.endpoint, 1).encode(), liar.key)
    liar.send(nodes[0], Request(nonce(1), None, contact.to_proto(), Ping()))
    await until(lambda: nodes[0].service.get_status()["questions_unanswered"] == 1)
    assert nodes[0].service.table.get(liar.key.node_id) is None
    assert nodes[0].knows(nodes[1])


async def test_contact_that_moves_is_followed(net: Net):
    nodes = await net.several(3)
    moved = nodes[2]
    new = Endpoint("10.0.9.9", 8101)
    end = net.network.datagrams(new, moved.id)
    end.on_datagram(moved.end._handler or (lambda *_: None))
    await net.stack.enter_async_context(end)
    moved.announced = new
    await moved.service.lookup(KEY)

    def follows(node: Node) -> bool:
        contact = node.service.table.get(moved.id)
        return contact is not None and contact.endpoint == new

    moved.end.send = end.send  # type: ignore[method-assign]  # it sends from there now
    await moved.service.lookup(KEY)
    await until(lambda: follows(nodes[0]) and follows(nodes[1]), what="the move to be noted")


async def test_liar_cannot_have_others_asked_where_it_says(net: Net):
    """It names invented nodes at a stranger's address in every answer of a lookup."""
    node, stranger = await net.add(), await net.outsider("stranger", "10.7.7.7")
    await ally(net, node, names=stranger.end.endpoint)
    for number in range(10):
        await node.service.lookup_signed(bytes([number]) * 20)
    assert 0 < len(stranger.heard) <= NUM_SENDS * PROBES_BURST


async def test_old_contact_that_a_liar_shows_leads_away_from_nobody(net: Net):
    nodes = await net.several(2)
    old = sign(Kind.DHT_CONTACT, DhtContact(Endpoint("10.0.7.7", 1), 1).encode(), nodes[1].key)
    await ally(net, nodes[0], shows=old)
    for number in range(MAX_STRIKES + 1):
        await nodes[0].service.lookup_signed(bytes([number]) * 20)
    contact = nodes[0].service.table.get(nodes[1].id)
    assert contact is not None
    assert (contact.endpoint, contact.strikes) == (nodes[1].end.endpoint, 0)


async def ally(
    net: Net, node: Node, *, names: Endpoint | None = None, shows: Signed | None = None
) -> Outsider:
    """A liar in the table of a node: as nearest it names others at an endpoint, or what it has."""
    liar = await net.outsider("ally", "10.6.6.6")

    def answer(data: bytes, source: Endpoint) -> None:
        message = envelope_pb2.Signed.FromString(data)
        if message.kind != envelope_pb2.KIND_DHT_REQUEST:
            return
        request = decode_request(message.body)
        lie = Answer(request.nonce, node.clock.wall(), num_records=0)
        if isinstance(request.question, Find) and names is not None:
            keys = [key_named(request.question.key, number) for number in range(8)]
            body = DhtContact(names, 1).encode()
            lie = replace(
                lie, contacts=fitting(lie, [sign(Kind.DHT_CONTACT, body, k) for k in keys])
            )
        elif isinstance(request.question, Find) and shows is not None:
            lie = replace(lie, contacts=(shows.to_proto(),))
        signed = sign(Kind.DHT_ANSWER, lie.encode(), liar.key)
        liar.end.send(source, signed.to_proto().SerializeToString())

    liar.end._handler = answer
    own = sign(Kind.DHT_CONTACT, DhtContact(liar.end.endpoint, 1).encode(), liar.key)
    liar.send(node, Request(nonce(999), None, own.to_proto(), Ping()))
    await until(lambda: node.service.table.get(liar.key.node_id) is not None)
    return liar


async def test_dead_node_is_dropped_after_three_questions_and_a_live_one_is_not(net: Net):
    nodes = await net.several(3)
    net.network.kill(nodes[2].id)
    lost = net.network.drop(nodes[1].id, nodes[0].id, when=2)
    for _ in range(3):
        assert nodes[0].knows(nodes[2])
        await nodes[0].service.lookup(KEY)
    assert not nodes[0].knows(nodes[2])
    assert nodes[0].knows(nodes[1])
    assert lost.fired == 2


async def test_nobody_is_dropped_while_this_node_is_cut_off(net: Net):
    nodes = await net.several(3)
    net.network.partition([nodes[0].id], [nodes[1].id, nodes[2].id])
    for _ in range(5):
        await nodes[0].service.lookup(KEY)
    assert nodes[0].knows(nodes[1]) or nodes[0].knows(nodes[2])
    net.network.heal()
    await nodes[0].service.publish(draft_of(0))
    assert (await nodes[1].service.lookup(KEY)).keys() == {nodes[0].id}


async def test_banned_node_is_not_answered(net: Net):
    node = await net.add()
    guest = await net.outsider("guest")
    node.peers.ban(guest.key.node_id, "a proof", None)
    guest.send(node, Request(nonce(1), None, None, Ping()))
    await until(lambda: node.service.dropped == {"banned": 1})
    assert not guest.heard


async def test_request_is_answered_once_and_only_by_whom_it_names(net: Net):
    node = await net.add()
    guest = await net.outsider("guest")
    ping = Request(nonce(1), node.id, None, Ping())
    guest.send(node, ping)
    guest.send(node, ping)
    guest.send(node, replace(ping, nonce=nonce(2), receiver=NodeId(bytes(20))))
    await until(lambda: node.service.dropped == {"replayed": 1, "not_for_us": 1})
    assert node.service.num_answered == 1


async def test_endpoint_that_proved_nothing_gets_few_answers(net: Net):
    node = await net.add()
    guest = await net.outsider("guest")
    for number in range(60):
        guest.send(node, Request(nonce(number), node.id, None, Ping()))
    await until(lambda: node.service.dropped.get("unproven") == 20)
    assert node.service.num_answered == 40


async def test_record_is_stored_only_by_its_publisher_from_where_it_asked(net: Net):
    node = await net.add()
    owner, thief = await net.outsider("owner"), await net.outsider("thief", "10.8.8.8")
    body = replace(draft_of(1), sequence=1, expires_at=node.clock.wall() + 60).encode()
    record = sign(Kind.DHT_RECORD, body, owner.key).to_proto()
    for guest in (owner, thief):
        guest.send(node, Request(nonce(1), None, None, Find(KEY)))
        await until(lambda guest=guest: len(guest.heard) == 1)
    permit, other = owner.answers()[0].permit, thief.answers()[0].permit
    store = Request(nonce(2), None, None, Store(record, permit))
    thief.send(node, store, owner.key)  # overheard, and sent from elsewhere
    thief.send(node, Request(nonce(3), None, None, Store(record, other)))  # another's record
    await until(lambda: len(thief.heard) == 3)
    assert [a.verdict.name for a in thief.answers()[1:]] == ["BAD_PERMIT", "REFUSED"]
    assert len(node.service.records) == 0
    owner.send(node, replace(store, nonce=nonce(4)))
    await until(lambda: len(node.service.records) == 1)


async def test_client_keeps_nothing(net: Net):
    node = await net.add(is_client=True)
    guest = await net.outsider("guest")
    guest.send(node, Request(nonce(1), None, None, Find(KEY)))
    await until(lambda: len(guest.heard) == 1)
    record = sign(Kind.DHT_RECORD, draft_of(1).encode(), guest.key).to_proto()
    permit = guest.answers()[0].permit
    guest.send(node, Request(nonce(2), None, None, Store(record, permit)))
    await until(lambda: len(guest.heard) == 2)
    assert guest.answers()[1].verdict.name == "REFUSED"


async def test_what_no_honest_node_signs_is_held_against_its_signer(net: Net):
    node = await net.add()
    guest = await net.outsider("guest")
    other = sign(Kind.DHT_CONTACT, DhtContact(guest.end.endpoint, 1).encode(), key_named("x"))
    guest.send(node, Request(nonce(1), None, other.to_proto(), Ping()))
    guest.send(node, Request(nonce(2), None, None, Find(b"short")))
    signed = sign(Kind.DHT_REQUEST, b"", guest.key)  # a question of a later version
    guest.end.send(node.end.endpoint, signed.to_proto().SerializeToString())
    await until(lambda: node.service.dropped == {"malformed": 3})
    standing = node.peers.conduct(node.clock.monotonic())[guest.key.node_id]
    assert standing.counts == {Offence.MALFORMED: 3}


async def test_question_that_is_cancelled_leaves_nothing_behind(net: Net):
    nodes = await net.several(2)
    net.network.kill(nodes[1].id)
    await nodes[0].service.stop()
    assert not nodes[0].service._exchange._pending
    assert nodes[0].service.state.name == "STOPPED"


def test_sequence_stays_in_its_range_whatever_the_clock_says():
    clock = FakeClock(wall_s=1e300)
    key = key_named("far ahead")
    publisher = Publisher(
        key, None, None, None,  # type: ignore[arg-type]
        ttl_s=60.0, swarm_now=clock.wall,
    )  # fmt: skip
    signed, record = publisher._sign(draft_of(1))
    assert record.sequence < 2**53
    assert signed.signer == key.node_id
