"""The DHT's requests and answers as frozen values, and their checked conversion from and to bytes.

Contacts and records inside stay unverified statements here; whoever uses one verifies it first.
Knows nothing of who is asked, and how often.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.errors import MessageTooLarge, ProtocolViolation, SchemaMismatch
from neuroswarm.v1 import dht_pb2, envelope_pb2
from neuroswarm.values import NODE_ID_BYTES, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.checks import check_count, check_instant, check_length
from neuroswarm.wire.dht_records import KEY_BYTES
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Signed

NONCE_BYTES = 16
PERMIT_BYTES = 8
TAG_BYTES = 4
MAX_BODY_BYTES = limits.MAX_DATAGRAM_BYTES - PUBLIC_KEY_BYTES - SIGNATURE_BYTES - 9
"""Body of a request or answer, so that it fits signed into a datagram."""


class Verdict(enum.IntEnum):
    """What became of a record; numbers are those of `neuroswarm.v1.DhtVerdict`."""

    UNSPECIFIED = 0
    STORED = 1
    NOT_NEWER = 2
    BAD_TIME = 3
    NO_ROOM = 4
    BAD_PERMIT = 5
    REFUSED = 6


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for the answerer's own contact."""


@dataclass(frozen=True, slots=True)
class Find:
    """Asks for the contacts nearest to a key, and how many records are kept under it."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for records under a key that the asker lacks, of signers after an id."""

    key: bytes
    after: bytes = b""
    """20 bytes, or empty: all."""
    known: frozenset[bytes] = frozenset()
    """Tags of records that need not be sent."""


@dataclass(frozen=True, slots=True)
class Store:
    """Asks to keep a record."""

    record: envelope_pb2.Signed
    permit: bytes


Question = Ping | Find | Fetch | Store


@dataclass(frozen=True, slots=True)
class Request:
    """A question to one node."""

    nonce: bytes
    receiver: NodeId | None
    """Who is asked; None if only its endpoint is known."""
    contact: envelope_pb2.Signed | None
    """The asker's own contact; None from clients."""
    question: Question

    def encode(self) -> bytes:
        """The body to sign."""
        proto = dht_pb2.DhtRequest(nonce=self.nonce, receiver=self.receiver or b"")
        if self.contact is not None:
            proto.contact.CopyFrom(self.contact)
        question = self.question
        if isinstance(question, Ping):
            proto.ping.SetInParent()
        elif isinstance(question, Find):
            proto.find.key = question.key
        elif isinstance(question, Fetch):
            known = b"".join(sorted(question.known))
            proto.fetch.MergeFrom(
                dht_pb2.DhtFetch(key=question.key, after=question.after, known=known)
            )
        else:
            proto.store.record.CopyFrom(question.record)
            proto.store.permit = question.permit
        return proto.SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answers; which fields matter follows from the question."""

    nonce: bytes
    time: float
    """The answerer's wall clock."""
    contact: envelope_pb2.Signed | None = None
    contacts: tuple[envelope_pb2.Signed, ...] = ()
    num_records: int = 0
    permit: bytes = b""
    records: tuple[envelope_pb2.Signed, ...] = ()
    num_left: int = 0
    verdict: Verdict = Verdict.UNSPECIFIED

    def encode(self) -> bytes:
        """The body to sign."""
        return dht_pb2.DhtAnswer(
            nonce=self.nonce,
            time=self.time,
            contact=self.contact,
            contacts=self.contacts,
            num_records=self.num_records,
            permit=self.permit,
            records=self.records,
            num_left=self.num_left,
            verdict=dht_pb2.DhtVerdict.Name(self.verdict),
        ).SerializeToString(deterministic=True)


def tag_of(signature: bytes) -> bytes:
    """What names a record among those known: the first bytes of its signature."""
    return signature[:TAG_BYTES]


def fitting(answer: Answer, messages: Iterable[Signed]) -> tuple[envelope_pb2.Signed, ...]:
    """As many of the messages, from the first on, as fit into the answer beside what it has."""
    room = MAX_BODY_BYTES - len(answer.encode()) - _COUNTS_BYTES
    taken: list[envelope_pb2.Signed] = []
    for message in messages:
        proto = message.to_proto()
        room -= proto.ByteSize() + _LENGTH_BYTES
        if room < 0:
            break
        taken.append(proto)
    return tuple(taken)


_LENGTH_BYTES = 3
_COUNTS_BYTES = 12


def decode_request(body: bytes) -> Request:
    """Read a request.

    Raises:
        SchemaMismatch: malformed.
        MessageTooLarge: a count is out of bounds.
        ProtocolViolation: it asks what this version does not know.
    """
    m = parse(dht_pb2.DhtRequest, body)
    check_length("nonce", m.nonce, NONCE_BYTES)
    if m.receiver:
        check_length("receiver", m.receiver, NODE_ID_BYTES)
    receiver = NodeId(m.receiver) if m.receiver else None
    contact = m.contact if m.HasField("contact") else None
    return Request(m.nonce, receiver, contact, _decode_question(m))


def decode_answer(body: bytes) -> Answer:
    """Read an answer; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    m = parse(dht_pb2.DhtAnswer, body)
    check_length("nonce", m.nonce, NONCE_BYTES)
    check_instant("time", m.time)
    if m.permit:
        check_length("permit", m.permit, PERMIT_BYTES)
    check_count("contacts", len(m.contacts), limits.MAX_DHT_CONTACTS)
    check_count("records", len(m.records), limits.MAX_DHT_CONTACTS)
    try:
        verdict = Verdict(m.verdict)
    except ValueError:
        verdict = Verdict.REFUSED  # of a later version: it is not kept, whatever the reason
    return Answer(
        m.nonce,
        m.time,
        m.contact if m.HasField("contact") else None,
        tuple(m.contacts),
        m.num_records,
        m.permit,
        tuple(m.records),
        m.num_left,
        verdict,
    )


def _decode_question(m: dht_pb2.DhtRequest) -> Question:
    which = m.WhichOneof("question")
    if which == "ping":
        return Ping()
    if which == "find":
        check_length("key", m.find.key, KEY_BYTES)
        return Find(m.find.key)
    if which == "fetch":
        return _decode_fetch(m.fetch)
    if which == "store":
        check_length("permit", m.store.permit, PERMIT_BYTES)
        return Store(m.store.record, m.store.permit)
    raise ProtocolViolation("request without a question that this version knows")


def _decode_fetch(m: dht_pb2.DhtFetch) -> Fetch:
    check_length("key", m.key, KEY_BYTES)
    if m.after:
        check_length("after", m.after, KEY_BYTES)
    if len(m.known) > TAG_BYTES * limits.MAX_DHT_TAGS:
        raise MessageTooLarge(
            f"known records: {len(m.known)} bytes (limit {TAG_BYTES * limits.MAX_DHT_TAGS})"
        )
    if len(m.known) % TAG_BYTES:
        raise SchemaMismatch(f"known records: {len(m.known)} bytes (a multiple of {TAG_BYTES})")
    tags = (m.known[i : i + TAG_BYTES] for i in range(0, len(m.known), TAG_BYTES))
    return Fetch(m.key, m.after, frozenset(tags))
