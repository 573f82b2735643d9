"""TLS certificates that a node issues to itself under its swarm's token, and whose they are.

Refuses to know what connections carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from neuroswarm.errors import BadSignature
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import NOT_AFTER, NOT_BEFORE, SwarmToken
from neuroswarm.values import NodeId

MEMBER_NAME = "node.neuroswarm"
"""DNS name in every member's certificate."""

IDENTITY_EXTENSION = x509.ObjectIdentifier("2.25.246132017823415590313873163947051426721")
"""Extension with a DER octet string: Ed25519 public key, then its signature of the TLS key."""

MAX_CERTIFICATE_BYTES = 8192
"""Longest PEM that is read; a member's own is about 1 KB. Servers remember callers' by it."""

_DOMAIN = b"neuroswarm v1 tls key\0"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_UNREADABLE = (
    ValueError,
    LookupError,  # a TLS feature that nobody has defined
    UnsupportedAlgorithm,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What reading a member's certificate may raise; it may hold any extensions."""

_DER_HEAD = bytes((0x04, _KEY_BYTES + _SIGNATURE_BYTES))


@dataclass(frozen=True)
class NodeCredentials:
    """What a node's TLS needs, in PEM, with the node key that proves its answers."""

    node_key: NodeKey
    key_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    ca_pem: bytes = field(repr=False)
    """Certificates of the authorities that others may be under, one after the other."""

    @property
    def node_id(self) -> NodeId:
        """The node that they are of."""
        return self.node_key.node_id


def get_host_name(node_id: NodeId) -> str:
    """The DNS name that only this node's certificate carries."""
    return f"{node_id.hex()}.neuroswarm"


def issue(
    token: SwarmToken, node_key: NodeKey, accepted: Iterable[SwarmToken] = ()
) -> NodeCredentials:
    """Make a fresh TLS key with a certificate under `token` that names the node.

    Others' certificates may be under `token` or one of the `accepted` tokens.

    Whoever holds the token can do this for its own node key, and for no other: the certificate
    carries the Ed25519 signature of the TLS key.
    """
    authority = token.certificate_authority
    key = ec.generate_private_key(ec.SECP256R1())
    signature = node_key.sign(_DOMAIN + _key_info(key.public_key()))
    identity = x509.UnrecognizedExtension(
        IDENTITY_EXTENSION, _DER_HEAD + node_key.public_key + signature
    )
    names = [x509.DNSName(MEMBER_NAME), x509.DNSName(get_host_name(node_key.node_id))]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_key.node_id.hex())])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identity, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return NodeCredentials(
        node_key,
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.public_bytes(Encoding.PEM),
        b"".join(
            trusted.certificate_authority.certificate.public_bytes(Encoding.PEM)
            for trusted in (token, *accepted)
        ),
    )


def read_identity(certificate_pem: bytes) -> NodeId:
    """Whose certificate this is, proven by the node key's signature of its TLS key.

    The chain up to the swarm's authority has been verified by TLS before.

    Raises:
        BadSignature: there is no such proof in it, or it does not verify.
    """
    if len(certificate_pem) > MAX_CERTIFICATE_BYTES:
        raise BadSignature(
            f"certificate too large: {len(certificate_pem)} bytes (limit {MAX_CERTIFICATE_BYTES})"
        )
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        extension = certificate.extensions.get_extension_for_oid(IDENTITY_EXTENSION)
        key_info = _key_info(certificate.public_key())
    except _UNREADABLE as error:
        raise BadSignature("certificate without a node identity") from error
    value = extension.value
    data = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
    if len(data) != len(_DER_HEAD) + _KEY_BYTES + _SIGNATURE_BYTES or data[:2] != _DER_HEAD:
        raise BadSignature(f"certificate with a malformed node identity: {len(data)} bytes")
    public_key, signature = data[2 : 2 + _KEY_BYTES], data[2 + _KEY_BYTES :]
    node_id = NodeId.of_key(public_key)
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _DOMAIN + key_info)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature(f"certificate claims to be {node_id}", peer=node_id) from error
    return node_id


def _key_info(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
