"""What the swarm's owner and a node say to each other about rules, sealed by the swarm's token.

Refuses to know how the bytes travel, and whether an amendment may follow the rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.v1 import control_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse
from neuroswarm.wire.sealed_calls import Sealing, check_size, reply_context
from neuroswarm.wire.signed import Signed, verify

RULES_PATH = "/v1/rules"
"""Where a node takes requests, by POST."""

MAX_REASON_CHARS = 512
_REQUEST_CONTEXT = b"neuroswarm v1 rules request"
_REPLY_CONTEXT = b"neuroswarm v1 rules reply"


@dataclass(frozen=True, slots=True)
class RulesReply:
    """What a node says of the swarm's rules; `rules` are not read yet."""

    swarm_id: bytes
    rules: bytes
    round: int
    is_taken: bool = False
    reason: str = ""


def seal_request(sealer: Sealing, amendment: Signed | None) -> bytes:
    """The body of a request, with an amendment or without one."""
    request = control_pb2.RulesRequest(
        amendment=None if amendment is None else amendment.to_proto()
    )
    return sealer.seal(request.SerializeToString(), _REQUEST_CONTEXT)


def open_request(sealer: Sealing, body: bytes) -> Signed | None:
    """The amendment that a request brings, its signature verified; None if it only asks.

    Raises:
        BadSignature: sealed with another token, or the signature does not verify.
        SchemaMismatch: malformed.
        MessageTooLarge: a size is above its limit.
    """
    check_size(body, limits.MAX_CONTROL_BODY_BYTES)
    request = parse(control_pb2.RulesRequest, sealer.open(body, _REQUEST_CONTEXT))
    return verify(request.amendment) if request.HasField("amendment") else None


def seal_reply(sealer: Sealing, request: bytes, reply: RulesReply) -> bytes:
    """The answer to the request with body `request`; it opens as an answer to no other one."""
    message = control_pb2.RulesReply(
        swarm_id=reply.swarm_id,
        rules=reply.rules,
        round=reply.round,
        is_taken=reply.is_taken,
        reason=reply.reason[:MAX_REASON_CHARS],
    )
    return sealer.seal(message.SerializeToString(), reply_context(_REPLY_CONTEXT, request))


def open_reply(sealer: Sealing, request: bytes, body: bytes) -> RulesReply:
    """What a node answered to `request`.

    Raises:
        BadSignature: sealed with another token or for another request.
        SchemaMismatch: malformed.
        MessageTooLarge: a size is above its limit.
    """
    check_size(body, limits.MAX_CONTROL_BODY_BYTES)
    m = parse(control_pb2.RulesReply, sealer.open(body, reply_context(_REPLY_CONTEXT, request)))
    return RulesReply(m.swarm_id, m.rules, m.round, m.is_taken, m.reason[:MAX_REASON_CHARS])
