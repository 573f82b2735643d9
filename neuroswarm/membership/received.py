"""Reading a heartbeat record that came from elsewhere: verified first, then parsed.

Refuses to judge whether it is news; the peer table does.
"""

from __future__ import annotations

from neuroswarm.errors import PeerError, SchemaMismatch
from neuroswarm.v1 import envelope_pb2
from neuroswarm.wire.heartbeats import Heartbeat, decode_heartbeat
from neuroswarm.wire.signed import Kind, Signed, verify


def read_record(message: envelope_pb2.Signed) -> tuple[Signed, Heartbeat]:
    """Verify a signed heartbeat and decode it.

    Raises:
        BadSignature: the signature does not verify.
        SchemaMismatch: it is no heartbeat, or malformed.
        MessageTooLarge: a size or count is above its limit.
    """
    signed = verify(message)
    if signed.kind is not Kind.HEARTBEAT:
        raise SchemaMismatch(f"not a heartbeat: {signed.kind.name.lower()}", peer=signed.signer)
    try:
        return signed, decode_heartbeat(signed.body)
    except PeerError as error:
        error.peer = signed.signer
        raise
