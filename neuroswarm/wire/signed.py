"""A signed statement: who says it, of which kind, and the check that comes before any parsing.

Knows nothing of what bodies say (`neuroswarm.wire.messages`) or where keys come from.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from neuroswarm.errors import BadSignature, MessageTooLarge, SchemaMismatch
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
SIGNED_OVERHEAD_BYTES = 128
"""More than a statement takes on the wire besides its body."""

_P = 2**255 - 19
_ORDER_8 = (
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
)
_OWNERLESS_KEYS = frozenset((0, 1, *_ORDER_8, _P - 1, _P, _P + 1))
"""Points of small order, as y coordinates: everybody can sign for such keys."""


class Kind(enum.IntEnum):
    """What a signed body is; numbers are those of `neuroswarm.v1.Kind`."""

    HEARTBEAT = 1
    CONTRIBUTION = 2
    SKIP = 3
    READY = 4
    BALLOT = 5
    CONFIRM = 6
    SEAL = 7
    AMENDMENT = 8
    DHT_REQUEST = 12
    DHT_ANSWER = 13
    DHT_CONTACT = 14
    DHT_RECORD = 15

    @property
    def max_body_bytes(self) -> int:
        """Largest body of this kind, with room for what later versions add."""
        return _MAX_BODY_BYTES.get(self, limits.MAX_BODY_BYTES)


_MAX_BODY_BYTES: Mapping[Kind, int] = {
    Kind.HEARTBEAT: limits.MAX_HEARTBEAT_BYTES,
    Kind.SKIP: limits.MAX_PROGRESS_BYTES,
    Kind.READY: limits.MAX_PROGRESS_BYTES,
    Kind.SEAL: limits.MAX_PROGRESS_BYTES,
    Kind.AMENDMENT: limits.MAX_AMENDMENT_BYTES,
    Kind.BALLOT: limits.MAX_LIST_BYTES,
    Kind.CONFIRM: limits.MAX_LIST_BYTES,
    Kind.DHT_REQUEST: limits.MAX_DATAGRAM_BYTES,
    Kind.DHT_ANSWER: limits.MAX_DATAGRAM_BYTES,
    Kind.DHT_CONTACT: limits.MAX_DHT_CONTACT_BYTES,
    Kind.DHT_RECORD: limits.MAX_DHT_RECORD_BYTES,
}


class Signer(Protocol):
    """Holds a node's Ed25519 key."""

    @property
    def public_key(self) -> bytes:
        """Raw public key, 32 bytes."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Ed25519 signature of `message`, 64 bytes."""
        ...


@dataclass(frozen=True)
class Signed:
    """A statement whose signature has been verified, or was made here."""

    kind: Kind
    body: bytes
    public_key: bytes
    signature: bytes

    @cached_property
    def signer(self) -> NodeId:
        """The node that signed it."""
        return NodeId.of_key(self.public_key)

    @cached_property
    def id(self) -> bytes:
        """SHA-256 over kind, signer and body: a contribution's id. 32 bytes."""
        return _id(self.kind, self.public_key, self.body)

    def to_proto(self) -> envelope_pb2.Signed:
        """The wire form."""
        return envelope_pb2.Signed(
            kind=envelope_pb2.Kind.Name(self.kind),
            body=self.body,
            public_key=self.public_key,
            signature=self.signature,
        )


def sign(kind: Kind, body: bytes, signer: Signer) -> Signed:
    """Sign `body` as a statement of `kind`; MessageTooLarge above `kind.max_body_bytes`."""
    _check_size(kind, body)
    return Signed(kind, body, signer.public_key, signer.sign(_domain(kind) + body))


def verify(message: envelope_pb2.Signed) -> Signed:
    """Check sizes, kind and signature of a received statement; its body stays unparsed.

    Raises:
        SchemaMismatch: unknown kind, or a key or signature of the wrong length.
        MessageTooLarge: the body is above the kind's `max_body_bytes`.
        BadSignature: the signature does not verify.
    """
    if len(message.public_key) != PUBLIC_KEY_BYTES or len(message.signature) != SIGNATURE_BYTES:
        raise SchemaMismatch("signed statement with a key or signature of the wrong length")
    try:
        kind = Kind(message.kind)
    except ValueError as error:
        raise SchemaMismatch(f"unknown kind of statement: {message.kind}") from error
    _check_size(kind, message.body)
    signed = Signed(kind, message.body, message.public_key, message.signature)
    if int.from_bytes(signed.public_key, "little") % 2**255 in _OWNERLESS_KEYS:
        raise BadSignature(f"signed with a key that nobody owns: {signed.public_key.hex()}")
    try:
        key = Ed25519PublicKey.from_public_bytes(signed.public_key)
        key.verify(signed.signature, _domain(kind) + signed.body)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(
            f"bad signature on a {kind.name.lower()} of {signed.signer}", peer=signed.signer
        ) from error
    return signed


def peek_id(message: envelope_pb2.Signed) -> bytes:
    """The id that a received statement has if it is authentic; for skipping known ones."""
    try:
        kind = Kind(message.kind)
    except ValueError as error:
        raise SchemaMismatch(f"unknown kind of statement: {message.kind}") from error
    return _id(kind, message.public_key, message.body)


def _check_size(kind: Kind, body: bytes) -> None:
    if len(body) > kind.max_body_bytes:
        raise MessageTooLarge(
            f"{kind.name.lower()} too large: {len(body)} bytes (limit {kind.max_body_bytes})"
        )


def _id(kind: Kind, public_key: bytes, body: bytes) -> bytes:
    return hashlib.sha256(_domain(kind) + public_key + body).digest()


def _domain(kind: Kind) -> bytes:
    return f"neuroswarm v1 {kind.name.lower()}\0".encode()
