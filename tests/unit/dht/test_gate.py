"""What is let in: rates, replays, permits, contacts and clocks."""

from __future__ import annotations

import pytest

from neuroswarm.dht import gate as gates
from neuroswarm.dht.calendar import MAX_WITNESSES, Calendar
from neuroswarm.dht.contacts import MAX_REMEMBERED, ContactReader, OwnContact
from neuroswarm.dht.gate import Gate
from neuroswarm.dht.permits import EPOCH_S, Permits
from neuroswarm.errors import BadSignature, SchemaMismatch
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.dht_records import DhtContact, decode_dht_contact
from neuroswarm.wire.signed import Kind, sign

KEY = NodeKey.generate()
HERE, THERE = Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 1)


def test_one_sender_cannot_use_up_what_others_may_send():
    gate = Gate(0.0)
    sent = [gate.admits(b"k" * 32, HERE, 0.0) for _ in range(500)]
    assert sum(sent) == gates.SENDER_BURST
    assert gate.admits(b"other" * 6 + b"..", HERE, 0.0)
    assert gate.admits(b"k" * 32, THERE, 0.0), "named by somebody at another address"
    assert gate.admits(b"k" * 32, HERE, 1.0)


def test_signatures_checked_in_all_are_bounded():
    gate = Gate(0.0)
    sent = [gate.admits(i.to_bytes(32, "big"), HERE, 0.0) for i in range(1500)]
    assert sum(sent) == gates.STRANGERS_BURST


def test_flood_under_invented_names_leaves_a_quarter_for_contacts():
    gate = Gate(0.0)
    names = (i.to_bytes(32, "big") for i in range(10**6))
    while gate.admits(next(names), HERE, 0.0):
        pass
    taken = [gate.admits(next(names), THERE, 0.0, is_contact=True) for _ in range(500)]
    assert sum(taken) == gates.MESSAGES_BURST / 4
    gate = Gate(0.0)
    while gate.admits(next(names), HERE, 0.0, is_contact=True):
        pass
    assert not gate.admits(next(names), THERE, 0.0), "and contacts are bounded, too"


def test_node_is_asked_seldom_where_others_say_it_is_until_it_has_answered_there():
    gate, node, other = Gate(0.0), KEY.node_id, NodeId(bytes(20))
    assert sum(gate.may_ask(node, HERE, 0.0) for _ in range(100)) == gates.PROBES_BURST
    gate.note_answer(node, HERE)
    assert all(gate.may_ask(node, HERE, 0.0) for _ in range(100))
    assert not gate.may_ask(other, HERE, 0.0), "who answers there answers for itself alone"
    assert sum(gate.may_ask(node, THERE, 0.0) for _ in range(100)) == gates.PROBES_BURST


def test_endpoints_that_answered_are_remembered_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gates, "MAX_PROVEN", 2)
    gate, node = Gate(0.0), KEY.node_id
    ports = [Endpoint("10.0.0.1", port) for port in (1, 2, 3)]
    for endpoint in ports:
        gate.note_answer(node, endpoint)
    assert [len([1 for _ in range(9) if gate.may_ask(node, e, 0.0)]) for e in ports] == [2, 9, 9]


def test_request_is_taken_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gates, "MAX_NONCES", 2)
    gate = Gate(0.0)
    assert gate.is_fresh(KEY.node_id, b"1")
    assert not gate.is_fresh(KEY.node_id, b"1")
    assert gate.is_fresh(NodeId(bytes(20)), b"1")
    assert gate.is_fresh(KEY.node_id, b"2")
    assert gate.is_fresh(KEY.node_id, b"1"), "forgotten: the memory is bounded"


def test_an_endpoint_that_proved_nothing_gets_few_answers_and_fewer_questions():
    gate = Gate(0.0)
    assert sum(gate.may_answer(HERE, 0.0) for _ in range(100)) == gates.UNPROVEN_BURST
    assert sum(gate.may_probe(THERE, 0.0) for _ in range(100)) == gates.PROBES_BURST
    assert gate.may_probe(THERE, 31.0)
    assert not gate.may_probe(THERE, 31.0)


def test_ports_of_one_address_share_an_allowance():
    gate = Gate(0.0)
    asked = [gate.may_probe(Endpoint("10.0.0.3", port), 0.0) for port in range(1, 1001)]
    assert sum(asked) == gates.GROUP_BURST


def test_permit_holds_for_its_asker_at_its_address_for_a_while():
    permits, asker = Permits(), KEY.node_id
    permit = permits.give(asker, "10.0.0.1", 0.0)
    assert permits.holds(permit, asker, "10.0.0.1", 2 * EPOCH_S - 1)
    assert not permits.holds(permit, asker, "10.0.0.1", 2 * EPOCH_S)
    assert not permits.holds(permit, asker, "10.0.0.2", 0.0)
    assert not permits.holds(permit, NodeId(bytes(20)), "10.0.0.1", 0.0)
    assert not Permits().holds(permit, asker, "10.0.0.1", 0.0), "another node's"


def test_own_contact_is_signed_anew_when_the_node_moves():
    endpoint = [HERE]
    own = OwnContact(KEY, lambda: endpoint[0])
    first = own.get(1000.0)
    assert first is not None
    assert own.get(2000.0) is first
    endpoint[0] = THERE
    second = own.get(500.0)
    assert second is not None
    before, after = decode_dht_contact(first.body), decode_dht_contact(second.body)
    assert after.endpoint == THERE
    assert after.sequence > before.sequence == 1000


@pytest.mark.parametrize("endpoint", [Endpoint("10.0.0.1", 0), Endpoint("h" * 81, 1)])
def test_node_that_cannot_say_where_it_is_is_a_client(endpoint: Endpoint):
    assert OwnContact(KEY, lambda: endpoint).get(0.0) is None


def test_client_tells_nobody_where_it_is():
    own = OwnContact(KEY, lambda: HERE)
    own.is_client = True
    assert own.get(0.0) is None


def test_contact_is_read_only_if_it_is_one_and_signed():
    reader = ContactReader()
    body = DhtContact(HERE, 1).encode()
    signed = sign(Kind.DHT_CONTACT, body, KEY)
    assert reader.read(signed.to_proto()) is reader.read(signed.to_proto())
    assert reader.read(signed.to_proto()).node_id == KEY.node_id
    for change in ({"body": DhtContact(THERE, 1).encode()}, {"signature": bytes(64)}):
        forged = signed.to_proto()
        for name, value in change.items():
            setattr(forged, name, value)
        with pytest.raises(BadSignature):
            reader.read(forged)
    other = sign(Kind.HEARTBEAT, body, KEY).to_proto()
    with pytest.raises(SchemaMismatch):
        reader.read(other)
    renamed = signed.to_proto()
    renamed.kind = other.kind
    with pytest.raises(BadSignature):
        reader.read(renamed)


def test_reader_remembers_a_bounded_number():
    reader = ContactReader()
    for sequence in range(MAX_REMEMBERED + 10):
        reader.read(sign(Kind.DHT_CONTACT, DhtContact(HERE, sequence).encode(), KEY).to_proto())
    assert len(reader._read) == MAX_REMEMBERED


def test_swarm_time_is_the_median_of_the_answers():
    clock = FakeClock(wall_s=0.0)
    calendar = Calendar(clock)
    assert calendar.now() == 0.0
    for number, time in enumerate((1.7e9, 1.7e9 + 1, 4e9)):
        calendar.note(NodeId(number.to_bytes(20, "big")), time)
    assert calendar.now() == 1.7e9 + 1
    for number in range(3, MAX_WITNESSES + 20):
        calendar.note(NodeId(number.to_bytes(20, "big")), 5.0)
    assert calendar.now() == 5.0
