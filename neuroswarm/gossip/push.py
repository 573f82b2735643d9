"""One push as bytes: statements, proofs and small payloads, within the limits.

Knows nothing of peers or of what statements say; nothing in a read push is verified yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuroswarm.errors import MessageTooLarge
from neuroswarm.gossip.outbox import Parcel
from neuroswarm.rounds.statements import Proof
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse


def encode_push(batch: Iterable[Parcel]) -> bytes:
    """The request that carries a batch of `Outbox.take_batch`."""
    request = gossip_pb2.PushRequest()
    for parcel in batch:
        if isinstance(parcel.content, Proof):
            first, second = parcel.content.first.to_proto(), parcel.content.second.to_proto()
            request.proofs.append(gossip_pb2.EquivocationProof(first=first, second=second))
            continue
        message = parcel.content.to_proto()
        request.messages.append(envelope_pb2.Relayed(message=message, hops_left=parcel.hops_left))
        if parcel.inline is not None:
            contribution = parcel.content.id
            request.inline.append(
                gossip_pb2.InlinePayload(contribution=contribution, data=parcel.inline)
            )
    return request.SerializeToString()


def decode_push(data: bytes) -> gossip_pb2.PushRequest:
    """Read a push; SchemaMismatch or MessageTooLarge if it is out of bounds."""
    request = parse(gossip_pb2.PushRequest, data)
    for what, count, limit in (
        ("messages", len(request.messages), limits.MAX_PUSH_MESSAGES),
        ("inline payloads", len(request.inline), limits.MAX_PUSH_INLINE),
        ("proofs", len(request.proofs), limits.MAX_PUSH_PROOFS),
    ):
        if count > limit:
            raise MessageTooLarge(f"push with too many {what}: {count} (limit {limit})")
    for inline in request.inline:
        if len(inline.data) > limits.MAX_INLINE_BYTES:
            raise MessageTooLarge(
                f"inline payload too large: {len(inline.data)} bytes "
                f"(limit {limits.MAX_INLINE_BYTES})"
            )
    return request
