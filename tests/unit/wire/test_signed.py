"""Signed statements: verified as they were signed, refused otherwise."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import BadSignature, MessageTooLarge, PeerError, SchemaMismatch
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.v1 import envelope_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.signed import Kind, Signed, sign, verify

KEY = NodeKey.generate()


def change(signed: Signed, **fields: object) -> envelope_pb2.Signed:
    """The wire form with some fields replaced, as a forger may send it."""
    proto = signed.to_proto()
    for name, value in fields.items():
        setattr(proto, name, value)
    return proto


@given(st.sampled_from(Kind), st.binary(max_size=500))
def test_statement_survives_the_wire(kind: Kind, body: bytes):
    signed = sign(kind, body, KEY)
    data = signed.to_proto().SerializeToString()
    received = verify(envelope_pb2.Signed.FromString(data))
    assert received == signed
    assert received.signer == KEY.node_id
    assert received.id == signed.id


def test_kinds_are_those_of_the_wire():
    names = {f"KIND_{kind.name}": int(kind) for kind in Kind}
    assert names | {"KIND_UNSPECIFIED": 0} == dict(envelope_pb2.Kind.items())


def test_id_is_the_hash_of_kind_signer_and_body():
    signed = sign(Kind.CONTRIBUTION, b"body", KEY)
    text = b"neuroswarm v1 contribution\0" + KEY.public_key + b"body"
    assert signed.id == hashlib.sha256(text).digest()


def test_id_differs_between_kinds_signers_and_bodies():
    signed = sign(Kind.BALLOT, b"body", KEY)
    others = [
        sign(Kind.CONFIRM, b"body", KEY),
        sign(Kind.BALLOT, b"body", NodeKey.generate()),
        sign(Kind.BALLOT, b"other", KEY),
    ]
    assert len({signed.id, *(other.id for other in others)}) == 4


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.SKIP])
def test_statement_does_not_pass_for_another_kind(kind: Kind):
    with pytest.raises(BadSignature) as caught:
        verify(change(sign(Kind.SKIP, b"body", KEY), kind=int(kind)))
    assert caught.value.peer == KEY.node_id


def test_changed_body_key_and_signature_are_refused():
    signed = sign(Kind.READY, b"body", KEY)
    for fields in (
        {"body": b"bodY"},
        {"public_key": NodeKey.generate().public_key},
        {"public_key": bytes(32)},
        {"signature": bytes(64)},
        {"signature": sign(Kind.READY, b"other", KEY).signature},
    ):
        with pytest.raises(BadSignature):
            verify(change(signed, **fields))


@pytest.mark.parametrize("kind", [0, 9, -1, 2**31 - 1])
def test_unknown_kind_is_refused(kind: int):
    with pytest.raises(SchemaMismatch, match="unknown kind"):
        verify(change(sign(Kind.SKIP, b"body", KEY), kind=kind))


@pytest.mark.parametrize(
    "fields",
    [
        {"public_key": b""},
        {"public_key": bytes(31)},
        {"public_key": bytes(33)},
        {"signature": b""},
        {"signature": bytes(63)},
        {"signature": bytes(65)},
    ],
    ids=["no key", "short key", "long key", "no signature", "short", "long"],
)
def test_key_and_signature_of_another_length_are_refused(fields: dict[str, bytes]):
    with pytest.raises(SchemaMismatch, match="wrong length"):
        verify(change(sign(Kind.SKIP, b"body", KEY), **fields))


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_largest_body_passes_and_a_byte_more_does_not(kind: Kind):
    body = bytes(kind.max_body_bytes)
    assert verify(sign(kind, body, KEY).to_proto()).body == body
    with pytest.raises(MessageTooLarge, match=f"limit {kind.max_body_bytes}"):
        sign(kind, body + b"\0", KEY)
    with pytest.raises(MessageTooLarge, match=f"limit {kind.max_body_bytes}"):
        verify(change(sign(kind, b"", KEY), body=body + b"\0"))


def test_no_kind_leaves_less_room_than_its_largest_statement():
    """Ids of 32 bytes take 34, fragments about 50; a heartbeat is bounded by its host."""
    assert Kind.BALLOT.max_body_bytes > 34 * limits.MAX_SET + 1024
    assert Kind.CONTRIBUTION.max_body_bytes > 60 * limits.MAX_FRAGMENTS + 1024
    assert Kind.HEARTBEAT.max_body_bytes > limits.MAX_HOST_CHARS + 512
    assert Kind.HEARTBEAT.max_body_bytes < limits.MAX_DATAGRAM_BYTES


@given(st.integers(-(2**31), 2**31 - 1), st.binary(), st.binary(), st.binary())
def test_anything_unsigned_is_refused_as_the_peers_fault(
    kind: int, body: bytes, key: bytes, signature: bytes
):
    message = envelope_pb2.Signed(body=body, public_key=key, signature=signature)
    message.kind = kind  # type: ignore[assignment]
    with pytest.raises(PeerError):
        verify(message)


@given(st.binary(max_size=50), st.binary(min_size=32, max_size=32), st.binary(min_size=64))
def test_random_keys_and_signatures_of_the_right_length_are_refused(
    body: bytes, key: bytes, signature: bytes
):
    message = envelope_pb2.Signed(
        kind=envelope_pb2.KIND_BALLOT, body=body, public_key=key, signature=signature[:64]
    )
    with pytest.raises(BadSignature):
        verify(message)


@pytest.mark.parametrize("sign_bit", [0, 128])
@pytest.mark.parametrize(
    "key",
    [
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    ],
)
def test_keys_of_small_order_are_refused(key: str, sign_bit: int):
    """The signature of zeros verifies under some of them, for one body in four or eight."""
    public_key = bytearray.fromhex(key)
    public_key[-1] |= sign_bit
    for body in range(16):
        message = envelope_pb2.Signed(
            kind=envelope_pb2.KIND_BALLOT,
            body=bytes([body]),
            public_key=bytes(public_key),
            signature=bytes(64),
        )
        with pytest.raises(BadSignature, match="nobody owns"):
            verify(message)
