"""Requests and answers of the DHT: round trips, limits, and that they fit into a datagram."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import MessageTooLarge, PeerError, ProtocolViolation, SchemaMismatch
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.v1 import dht_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.dht_messages import (
    Answer,
    Fetch,
    Find,
    Ping,
    Question,
    Request,
    Store,
    Verdict,
    decode_answer,
    decode_request,
    fitting,
)
from neuroswarm.wire.dht_records import DhtContact
from neuroswarm.wire.signed import Kind, sign

KEY = NodeKey.generate()
NONCE, PLACE, PERMIT = bytes(range(16)), b"k" * 20, b"permit.."
CONTACT = sign(
    Kind.DHT_CONTACT, DhtContact(Endpoint("192.168.100.100", 65535), 2**35).encode(), KEY
)
RECORD = sign(Kind.DHT_RECORD, bytes(limits.MAX_DHT_RECORD_BYTES), KEY)
TAGS = frozenset(i.to_bytes(4, "big") for i in range(limits.MAX_DHT_TAGS))
QUESTIONS: list[Question] = [
    Ping(),
    Find(PLACE),
    Fetch(PLACE),
    Fetch(PLACE, PLACE, TAGS),
    Store(RECORD.to_proto(), PERMIT),
]


def datagram(kind: Kind, body: bytes) -> bytes:
    return sign(kind, body, KEY).to_proto().SerializeToString()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: type(q).__name__)
def test_request_survives_the_wire_and_fits_into_a_datagram(question: Question):
    contact = None if isinstance(question, Store) else CONTACT.to_proto()
    request = Request(NONCE, NodeId(PLACE), contact, question)
    body = request.encode()
    assert decode_request(body) == request
    assert len(datagram(Kind.DHT_REQUEST, body)) <= limits.MAX_DATAGRAM_BYTES


def test_client_to_whom_the_receiver_is_unknown_can_ask():
    request = Request(NONCE, None, None, Ping())
    assert decode_request(request.encode()) == request


def test_answer_survives_the_wire():
    answer = Answer(
        NONCE, 1.7e9, CONTACT.to_proto(), (CONTACT.to_proto(),), 3, PERMIT,
        (RECORD.to_proto(),), 2, Verdict.NOT_NEWER,
    )  # fmt: skip
    assert decode_answer(answer.encode()) == answer


def test_eight_contacts_fit_into_an_answer_and_a_datagram():
    bare = Answer(NONCE, 1.7e9, num_records=2**32 - 1, permit=PERMIT)
    taken = fitting(bare, [CONTACT] * limits.MAX_DHT_CONTACTS)
    assert len(taken) == limits.MAX_DHT_CONTACTS
    full = Answer(NONCE, 1.7e9, contacts=taken, num_records=2**32 - 1, permit=PERMIT)
    assert len(datagram(Kind.DHT_ANSWER, full.encode())) <= limits.MAX_DATAGRAM_BYTES


def test_one_record_always_fits_and_no_more_than_fit_are_taken():
    bare = Answer(NONCE, 1.7e9, num_left=2**32 - 1)
    taken = fitting(bare, [RECORD, RECORD, RECORD])
    assert len(taken) == 1
    full = Answer(NONCE, 1.7e9, records=taken, num_left=2**32 - 1)
    assert len(datagram(Kind.DHT_ANSWER, full.encode())) <= limits.MAX_DATAGRAM_BYTES


@pytest.mark.parametrize(
    "request_",
    [
        Request(b"short", None, None, Ping()),
        Request(NONCE, None, None, Find(b"short")),
        Request(NONCE, None, None, Fetch(b"short")),
        Request(NONCE, None, None, Fetch(PLACE, b"short")),
        Request(NONCE, None, None, Fetch(PLACE, b"", frozenset([b"odd"]))),
        Request(NONCE, None, None, Fetch(PLACE, b"", TAGS | {b"more"})),
        Request(NONCE, None, None, Store(RECORD.to_proto(), b"short")),
    ],
)
def test_request_out_of_bounds_is_refused(request_: Request):
    with pytest.raises((SchemaMismatch, MessageTooLarge)):
        decode_request(request_.encode())


def test_receiver_of_another_length_is_refused():
    proto = dht_pb2.DhtRequest(nonce=NONCE, receiver=b"short")
    with pytest.raises(SchemaMismatch):
        decode_request(proto.SerializeToString())


def test_question_of_a_later_version_is_not_called_malformed():
    with pytest.raises(ProtocolViolation) as caught:
        decode_request(dht_pb2.DhtRequest(nonce=NONCE).SerializeToString())
    assert type(caught.value) is ProtocolViolation


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"short", 0.0),
        Answer(NONCE, math.nan),
        Answer(NONCE, -1.0),
        Answer(NONCE, 1e308),
        Answer(NONCE, 0.0, permit=b"short"),
        Answer(NONCE, 0.0, contacts=(CONTACT.to_proto(),) * 9),
        Answer(NONCE, 0.0, records=(CONTACT.to_proto(),) * 9),
    ],
)
def test_answer_out_of_bounds_is_refused(answer: Answer):
    with pytest.raises((SchemaMismatch, MessageTooLarge)):
        decode_answer(answer.encode())


def test_verdict_of_a_later_version_means_that_nothing_is_kept():
    proto = dht_pb2.DhtAnswer(nonce=NONCE)
    proto.MergeFromString(b"\x48\x63")  # verdict = 99
    assert decode_answer(proto.SerializeToString()).verdict is Verdict.REFUSED


@given(data=st.binary(max_size=400))
def test_random_bytes_are_decoded_or_refused_as_the_peers_fault(data: bytes):
    for decode in (decode_request, decode_answer):
        try:
            found = decode(data)
        except PeerError:
            continue
        assert decode(found.encode()) == found
