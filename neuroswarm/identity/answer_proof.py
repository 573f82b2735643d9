"""Proof of who answers a call, where TLS shows the caller only that it is some member.

Every member can issue certificates under the swarm's authority, so a host name in one proves
nothing, and gRPC does not show the caller the certificate. The caller's own identity, though, is
proven to the one who answers: signing it together with the caller's nonce leaves a member in the
middle nothing to pass on, because towards the real node it is itself the caller.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from neuroswarm.errors import BadSignature
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import NodeId

NONCE_BYTES = 16
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_DOMAIN = b"neuroswarm v1 answer\0"


def make_nonce() -> bytes:
    """Random bytes that a caller sends with one call. 16 bytes."""
    return secrets.token_bytes(NONCE_BYTES)


def prove_answer(node_key: NodeKey, caller: NodeId, nonce: bytes) -> bytes:
    """Public key and signature over nonce and caller, for the caller to check. 96 bytes."""
    return node_key.public_key + node_key.sign(_DOMAIN + nonce + caller)


def verify_answer(proof: bytes, caller: NodeId, nonce: bytes, *, expected: NodeId) -> None:
    """Check that `expected` made the proof for this caller and nonce; BadSignature if not."""
    public_key, signature = proof[:_KEY_BYTES], proof[_KEY_BYTES:]
    if len(signature) != _SIGNATURE_BYTES or NodeId.of_key(public_key) != expected:
        raise BadSignature(f"answer of another node than {expected}")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _DOMAIN + nonce + caller)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(f"answer not signed by {expected}") from error
