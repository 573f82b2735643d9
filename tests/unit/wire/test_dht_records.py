"""Contacts and records of the DHT: round trips, keys, every limit."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import MessageTooLarge, PeerError, ProtocolViolation, SchemaMismatch
from neuroswarm.v1 import dht_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.dht_records import (
    DhtContact,
    DhtRecord,
    Relay,
    Scope,
    decode_dht_contact,
    decode_dht_record,
    fragment_key,
    node_key,
    swarm_key,
)

SWARM = bytes(range(32))
NODE = NodeId(b"n" * 20)
LONGEST_HOST = ".".join(["h" * 39, "h" * 40])
RECORD = DhtRecord(
    swarm_id=SWARM,
    scope=Scope.FRAGMENT,
    fragment=3,
    sequence=7,
    expires_at=1.7e9,
    hosts=("10.0.0.1", "2001:db8::1", "node.example"),
    grpc_port=8101,
    heartbeat_port=9999,
    dht_port=8101,
    http_port=7101,
    protocol=1,
    is_unreachable=True,
    relays=(Relay(NodeId(b"r" * 20), Endpoint("10.0.0.2", 8101)),),
    is_training=True,
    available_memory_mb=4096,
    tokens_per_s=0.5,
    first_fragment=1,
    num_fragments=5,
    round=41,
    digest=bytes(32),
)


def change(**fields: object) -> bytes:
    return dataclasses.replace(RECORD, **fields).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", "pi.local"])
def test_contact_survives_the_wire(host: str):
    contact = DhtContact(Endpoint(host, 8101), 5)
    read = decode_dht_contact(contact.encode())
    assert read.sequence == 5
    assert read.endpoint == Endpoint(str(host), 8101) or "ffff" in host


def test_record_survives_the_wire():
    assert decode_dht_record(RECORD.encode()) == RECORD
    assert decode_dht_record(RECORD.encode()).encode() == RECORD.encode()


def test_largest_record_is_within_its_limit():
    relay = Relay(NODE, Endpoint(LONGEST_HOST, 65535))
    largest = dataclasses.replace(
        RECORD,
        sequence=limits.MAX_COUNT,
        round=limits.MAX_COUNT,
        available_memory_mb=limits.MAX_COUNT,
        hosts=(LONGEST_HOST,) * limits.MAX_DHT_HOSTS,
        relays=(relay,) * limits.MAX_DHT_RELAYS,
    )
    assert len(LONGEST_HOST) == limits.MAX_DHT_HOST_CHARS
    assert decode_dht_record(largest.encode()) == largest
    assert len(largest.encode()) <= limits.MAX_DHT_RECORD_BYTES


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"swarm_id": b"short"}, SchemaMismatch),
        ({"digest": b"short"}, SchemaMismatch),
        ({"hosts": ("10.0.0.1",) * 5}, MessageTooLarge),
        ({"hosts": ("h" * 81,)}, SchemaMismatch),
        ({"hosts": ("",)}, SchemaMismatch),
        ({"hosts": ("unix:/run",)}, SchemaMismatch),
        ({"relays": RECORD.relays * 4}, MessageTooLarge),
        ({"relays": (Relay(NODE, Endpoint("a b", 1)),)}, SchemaMismatch),
        ({"relays": (Relay(NODE, Endpoint("a", 65536)),)}, MessageTooLarge),
        ({"grpc_port": 65536}, MessageTooLarge),
        ({"sequence": limits.MAX_COUNT + 1}, MessageTooLarge),
        ({"fragment": limits.MAX_FRAGMENTS}, MessageTooLarge),
        ({"num_fragments": limits.MAX_FRAGMENTS}, MessageTooLarge),
        ({"expires_at": math.inf}, SchemaMismatch),
        ({"tokens_per_s": math.nan}, SchemaMismatch),
        ({"scope": Scope.NODE}, SchemaMismatch),
    ],
)
def test_record_out_of_bounds_is_refused(fields: dict[str, object], error: type[PeerError]):
    with pytest.raises(error):
        decode_dht_record(change(**fields))


def test_record_of_a_later_version_is_not_called_malformed():
    proto = dht_pb2.DhtRecord(swarm_id=SWARM)
    with pytest.raises(ProtocolViolation) as caught:
        decode_dht_record(proto.SerializeToString())
    assert type(caught.value) is ProtocolViolation


@pytest.mark.parametrize(
    "proto",
    [
        dht_pb2.DhtContact(address=bytes(4)),
        dht_pb2.DhtContact(address=bytes(5), port=1),
        dht_pb2.DhtContact(address=bytes(4), name="both", port=1),
        dht_pb2.DhtContact(port=1),
        dht_pb2.DhtContact(name="h" * 81, port=1),
        dht_pb2.DhtContact(name="10.0.0.1%eth0", port=1),
        dht_pb2.DhtContact(address=bytes(4), port=65536),
        dht_pb2.DhtContact(address=bytes(4), port=1, sequence=2**60),
    ],
)
def test_contact_out_of_bounds_is_refused(proto: dht_pb2.DhtContact):
    with pytest.raises(PeerError):
        decode_dht_contact(proto.SerializeToString())


def test_keys_differ_by_what_they_name():
    other = bytes(32)
    keys = [
        swarm_key(SWARM),
        swarm_key(other),
        fragment_key(SWARM, 0),
        fragment_key(SWARM, 1),
        node_key(SWARM, NODE),
        node_key(other, NODE),
        node_key(SWARM, NodeId(bytes(20))),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 20 for key in keys)


def test_nobody_else_has_a_record_under_the_key_of_a_node():
    record = RECORD.under(Scope.NODE)
    assert record.key(NODE) == node_key(SWARM, NODE)
    assert record.key(NodeId(bytes(20))) != node_key(SWARM, NODE)
    assert RECORD.key(NODE) == fragment_key(SWARM, 3)
    assert record.under(Scope.SWARM).key(NODE) == swarm_key(SWARM)


def test_client_that_takes_no_heartbeats_has_no_endpoint_for_them():
    assert DhtRecord(SWARM, Scope.SWARM, hosts=("a", "b")).heartbeat_endpoints == ()
    assert RECORD.heartbeat_endpoints[0] == Endpoint("10.0.0.1", 9999)


@given(data=st.binary(max_size=400))
def test_random_bytes_are_decoded_or_refused_as_the_peers_fault(data: bytes):
    for decode in (decode_dht_record, decode_dht_contact):
        try:
            found = decode(data)
        except PeerError:
            continue
        assert decode(found.encode()) == found
