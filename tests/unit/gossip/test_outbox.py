from __future__ import annotations

import pytest

from neuroswarm.errors import MessageTooLarge, SchemaMismatch
from neuroswarm.gossip.outbox import MAX_TRIES, MAX_WAITING, Outbox, Parcel
from neuroswarm.gossip.push import decode_push, encode_push
from neuroswarm.rounds.statements import Proof
from neuroswarm.testing.speaker import Speaker
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.signed import verify

ANNA = Speaker("anna")
READY = ANNA.ready()
PROOF = Proof(ANNA.ballot(), ANNA.ballot([b"i" * 32]))


def full_of(*parcels: Parcel) -> Outbox:
    outbox = Outbox()
    for parcel in parcels:
        outbox.put(parcel)
    return outbox


def test_parcels_leave_in_the_order_in_which_they_came():
    parcels = [Parcel(READY, n) for n in range(3)]
    outbox = full_of(*parcels)
    assert outbox.take_batch() == parcels
    assert len(outbox) == 0
    assert outbox.take_batch() == []


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: Parcel(READY), limits.MAX_PUSH_MESSAGES),
        (lambda: Parcel(READY, inline=b"payload"), limits.MAX_PUSH_INLINE),
        (lambda: Parcel(PROOF), limits.MAX_PUSH_PROOFS),
    ],
    ids=["messages", "inline", "proofs"],
)
def test_a_batch_keeps_to_the_limits_of_a_push(make, limit: int):
    outbox = full_of(*(make() for _ in range(limit + 1)))
    batch = outbox.take_batch()
    assert len(batch) == limit
    assert len(outbox) == 1
    decode_push(encode_push(batch))


def test_a_batch_is_bounded_in_bytes_but_never_empty():
    # Ballots as large as they get: MAX_SET ids of 32 bytes.
    ids = [number.to_bytes(32, "big") for number in range(limits.MAX_SET)]
    outbox = full_of(*(Parcel(ANNA.ballot(ids)) for _ in range(2 * limits.MAX_PUSH_MESSAGES)))
    while len(outbox):
        batch = outbox.take_batch()
        assert batch
        assert len(encode_push(batch)) <= limits.MAX_MESSAGE_BYTES


def test_a_full_outbox_drops_the_oldest():
    outbox = full_of(*(Parcel(READY, n) for n in range(MAX_WAITING + 2)))
    assert outbox.num_dropped == 2
    assert outbox.take_batch()[0].hops_left == 2


def test_a_failed_batch_comes_first_again_until_it_failed_too_often():
    outbox = full_of(Parcel(READY, 1), Parcel(READY, 2))
    for _ in range(MAX_TRIES - 1):
        batch = outbox.take_batch()
        outbox.put(Parcel(READY, 3))
        outbox.put_back(batch)
        assert [parcel.hops_left for parcel in batch[:2]] == [1, 2]
    batch = outbox.take_batch()
    outbox.put_back(batch)
    assert outbox.num_dropped == 2
    assert {parcel.hops_left for parcel in outbox.take_batch()} == {3}


def test_a_push_carries_statements_payloads_and_proofs():
    signed = ANNA.contribution(b"payload")
    batch = [Parcel(signed, 2, b"payload"), Parcel(READY, 1), Parcel(PROOF)]
    request = decode_push(encode_push(batch))
    assert [verify(m.message) for m in request.messages] == [signed, READY]
    assert [m.hops_left for m in request.messages] == [2, 1]
    assert [(i.contribution, i.data) for i in request.inline] == [(signed.id, b"payload")]
    (proof,) = request.proofs
    assert (verify(proof.first), verify(proof.second)) == (PROOF.first, PROOF.second)


@pytest.mark.parametrize(
    ("what", "request_"),
    [
        (
            "messages",
            gossip_pb2.PushRequest(
                messages=[envelope_pb2.Relayed()] * (limits.MAX_PUSH_MESSAGES + 1)
            ),
        ),
        (
            "inline payloads",
            gossip_pb2.PushRequest(
                inline=[gossip_pb2.InlinePayload()] * (limits.MAX_PUSH_INLINE + 1)
            ),
        ),
        (
            "proofs",
            gossip_pb2.PushRequest(
                proofs=[gossip_pb2.EquivocationProof()] * (limits.MAX_PUSH_PROOFS + 1)
            ),
        ),
        (
            "inline payload too large",
            gossip_pb2.PushRequest(
                inline=[gossip_pb2.InlinePayload(data=bytes(limits.MAX_INLINE_BYTES + 1))]
            ),
        ),
    ],
)
def test_a_push_out_of_bounds_is_refused(what: str, request_: gossip_pb2.PushRequest):
    with pytest.raises(MessageTooLarge, match=what):
        decode_push(request_.SerializeToString())


def test_bytes_that_are_no_push_are_refused():
    with pytest.raises(SchemaMismatch):
        decode_push(b"\xff\xff\xff")
