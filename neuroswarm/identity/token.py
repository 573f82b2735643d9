"""The swarm token: one secret that admits to a swarm, and the keys that follow from it.

Refuses to know where a token is kept and who holds it.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from neuroswarm.errors import AdmissionError

SECRET_BYTES = 32
PREFIX = "nswarm-"
NOT_BEFORE = datetime.datetime(1950, 1, 2, tzinfo=datetime.UTC)
NOT_AFTER = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)
"""Certificates are valid from 1950, the first year that they can name, to 2200: small machines
start with wrong clocks, at the first second of 1970 or before."""

_CHECKSUM_BYTES = 3
_TEXT_CHARS = (SECRET_BYTES + _CHECKSUM_BYTES) * 8 // 5
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class CertificateAuthority:
    """The key under which every holder of a token issues its own certificate."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate


@dataclass(frozen=True)
class SwarmToken:
    """The 32 secret bytes of a swarm; never shown by `repr`."""

    secret: bytes = field(repr=False)

    OPEN: ClassVar[SwarmToken]
    """What swarms without a token use: everybody knows it, so it keeps nobody out."""

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(f"token secret: {len(self.secret)} bytes (needs {SECRET_BYTES})")

    @classmethod
    def new(cls) -> SwarmToken:
        """A token for a new swarm, from the operating system's randomness."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> SwarmToken:
        """Read what `text` printed; blanks around it and the case of letters do not matter.

        Raises:
            AdmissionError: it is no whole token. The message does not repeat it.
        """
        digits = text.strip().lower()
        if not digits.startswith(PREFIX):
            raise AdmissionError(
                f"malformed swarm token: does not start with {PREFIX!r} "
                "(make one with `neuroswarm token new`)"
            )
        digits = digits.removeprefix(PREFIX)
        if len(digits) != _TEXT_CHARS:
            raise AdmissionError(
                f"malformed swarm token: {len(digits)} characters after {PREFIX!r} "
                f"(needs {_TEXT_CHARS}; copy it whole)"
            )
        try:
            data = base64.b32decode(digits.upper())
        except (binascii.Error, ValueError) as error:
            raise AdmissionError(
                "malformed swarm token: only the letters a-z and digits 2-7 occur in one"
            ) from error
        secret, checksum = data[:SECRET_BYTES], data[SECRET_BYTES:]
        if not hmac.compare_digest(checksum, _checksum(secret)):
            raise AdmissionError("malformed swarm token: its checksum is wrong (copy it again)")
        return cls(secret)

    @property
    def text(self) -> str:
        """What people copy: "nswarm-" and 56 letters and digits, the last ones a checksum."""
        return PREFIX + base64.b32encode(self.secret + _checksum(self.secret)).decode().lower()

    @property
    def is_open(self) -> bool:
        """Whether this is the token that everybody knows."""
        return hmac.compare_digest(self.secret, SwarmToken.OPEN.secret)

    @cached_property
    def fingerprint(self) -> str:
        """8 hex digits that differ between tokens and tell nothing of the secret, for logs."""
        return self.derive("fingerprint", 4).hex()

    @cached_property
    def datagram_key(self) -> bytes:
        """Key that seals datagrams and tracker bodies. 32 bytes."""
        return self.derive("datagram", 32)

    @cached_property
    def certificate_authority(self) -> CertificateAuthority:
        """ECDSA P-256 key and self-signed certificate of this swarm.

        The key is the same for every holder of the token; the certificate's own signature is
        not, and nobody compares it.
        """
        number = int.from_bytes(self.derive("certificate authority", 48), "big")
        key = ec.derive_private_key(number % (_P256_ORDER - 1) + 1, ec.SECP256R1())
        common_name = f"neuroswarm {self.fingerprint}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(NOT_BEFORE)
            .not_valid_after(NOT_AFTER)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return CertificateAuthority(key, certificate)

    def derive(self, purpose: str, num_bytes: int) -> bytes:
        """HKDF-SHA-256 of the secret for one purpose; purposes tell nothing of one another."""
        info = f"neuroswarm v1 {purpose}".encode()
        return HKDF(hashes.SHA256(), num_bytes, salt=None, info=info).derive(self.secret)


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(b"neuroswarm v1 token checksum\0" + secret).digest()[:_CHECKSUM_BYTES]


SwarmToken.OPEN = SwarmToken(hashlib.sha256(b"neuroswarm v1 open swarm").digest())
