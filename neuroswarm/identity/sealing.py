"""Sealing of what travels outside TLS: only holders of the key can make or read it.

Refuses to know what is sealed, and does not stop replay: sealed records carry sequence numbers.
"""

from __future__ import annotations

import contextlib
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from neuroswarm.errors import BadSignature

NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16
"""How much longer a sealed message is."""


class Sealer:
    """ChaCha20-Poly1305 with a random nonce for each message.

    One key may seal about 2^32 messages before two nonces meet with probability 2^-33:
    a swarm of 50 that sends 500 datagrams a second gets there in three months.
    """

    def __init__(self, key: bytes, *accepted: bytes) -> None:
        """Take keys of 32 bytes, like `SwarmToken.datagram_key`.

        Args:
            key: Seals, and is tried first on opening.
            accepted: Open too, while a swarm changes its token.
        """
        self._cipher = ChaCha20Poly1305(key)
        self._ciphers = (self._cipher, *(ChaCha20Poly1305(other) for other in accepted))

    def seal(self, data: bytes, context: bytes = b"") -> bytes:
        """Encrypt and authenticate `data`; `context` says what it is and is not sent."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, context)

    def open(self, sealed: bytes, context: bytes = b"") -> bytes:
        """Return what was sealed with one of the keys in this context; BadSignature otherwise."""
        if len(sealed) < OVERHEAD_BYTES:
            raise BadSignature(f"not sealed: {len(sealed)} bytes (at least {OVERHEAD_BYTES})")
        nonce, text = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        for cipher in self._ciphers:
            with contextlib.suppress(InvalidTag):
                return cipher.decrypt(nonce, text, context)
        raise BadSignature("sealed with another key, or damaged on the way")
