"""Certificates: bound to the node key, accepted under the same token only."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from neuroswarm.errors import BadSignature
from neuroswarm.identity.certificate import (
    IDENTITY_EXTENSION,
    MAX_CERTIFICATE_BYTES,
    MEMBER_NAME,
    get_host_name,
    issue,
    read_identity,
)
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import NOT_AFTER, NOT_BEFORE, SwarmToken

TOKEN = SwarmToken(bytes(range(32)))
KEY = NodeKey.generate()


def forge(extension: bytes | None, oid: x509.ObjectIdentifier = IDENTITY_EXTENSION) -> bytes:
    """A certificate that a member makes for a TLS key of its own with any identity in it."""
    authority = TOKEN.certificate_authority
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(1)
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
    )
    if extension is not None:
        identity = x509.UnrecognizedExtension(oid, extension)
        builder = builder.add_extension(identity, critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_certificate_tells_whose_it_is():
    credentials = issue(TOKEN, KEY)
    assert read_identity(credentials.certificate_pem) == KEY.node_id == credentials.node_id


def test_certificate_is_signed_by_the_token_and_names_the_node():
    certificate = x509.load_pem_x509_certificate(issue(TOKEN, KEY).certificate_pem)
    certificate.verify_directly_issued_by(TOKEN.certificate_authority.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [MEMBER_NAME, get_host_name(KEY.node_id)]
    assert certificate.not_valid_before_utc.year == 1950
    assert certificate.not_valid_after_utc.year == 2200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("clock_s", [0, 1, 1_700_000_000, 3_153_600_000], ids=str)
def test_certificates_are_valid_by_every_clock_from_the_first_second_on(
    tmp_path: Path, clock_s: int
):
    credentials = issue(TOKEN, KEY)
    (tmp_path / "ca").write_bytes(credentials.ca_pem)
    (tmp_path / "node").write_bytes(credentials.certificate_pem)
    command = ["openssl", "verify", "-attime", str(clock_s), "-CAfile"]
    done = subprocess.run(
        [*command, str(tmp_path / "ca"), str(tmp_path / "node")], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_certificate_of_another_token_has_another_issuer():
    certificate = x509.load_pem_x509_certificate(issue(SwarmToken.new(), KEY).certificate_pem)
    with pytest.raises(ValueError, match=r"(?i)issuer"):
        certificate.verify_directly_issued_by(TOKEN.certificate_authority.certificate)


def test_identity_of_another_node_cannot_be_copied_to_another_tls_key():
    genuine = x509.load_pem_x509_certificate(issue(TOKEN, KEY).certificate_pem)
    value = genuine.extensions.get_extension_for_oid(IDENTITY_EXTENSION).value
    assert isinstance(value, x509.UnrecognizedExtension)
    with pytest.raises(BadSignature, match=f"claims to be {KEY.node_id}") as caught:
        read_identity(forge(value.value))
    assert caught.value.peer == KEY.node_id


@pytest.mark.parametrize(
    "extension",
    [None, b"", b"\x04\x60", b"\x04\x60" + bytes(95), b"\x04\x61" + bytes(96), bytes(98)],
    ids=["none", "empty", "head only", "short", "wrong length", "wrong tag"],
)
def test_certificate_without_a_whole_identity_is_refused(extension: bytes | None):
    with pytest.raises(BadSignature, match="node identity"):
        read_identity(forge(extension))


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x02\xa3\x00"),
        (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\xff"),
        (ExtensionOID.TLS_FEATURE, b"\x30\x03\x02\x01\x63"),
        (ExtensionOID.BASIC_CONSTRAINTS, b"\x30\x03\x02\x01\x05"),
    ],
    ids=["x400 name", "no name", "feature 99", "constraints"],
)
def test_certificate_with_an_extension_that_cannot_be_read_is_refused(
    oid: x509.ObjectIdentifier, value: bytes
):
    with pytest.raises(BadSignature, match="without a node identity"):
        read_identity(forge(value, oid))


@pytest.mark.parametrize("text", [b"", b"garbage", issue(TOKEN, KEY).certificate_pem[:300]])
def test_what_is_no_certificate_is_refused(text: bytes):
    with pytest.raises(BadSignature):
        read_identity(text)


def test_repr_shows_no_secret():
    assert "PRIVATE" not in repr(issue(TOKEN, KEY))


def test_a_certificate_above_the_limit_is_not_read():
    padded = issue(TOKEN, KEY).certificate_pem + b"\n" * MAX_CERTIFICATE_BYTES
    with pytest.raises(BadSignature, match="certificate too large"):
        read_identity(padded)


def test_credentials_trust_the_authorities_of_all_accepted_tokens():
    other = SwarmToken(bytes(32))
    found = x509.load_pem_x509_certificates(issue(TOKEN, KEY, [other]).ca_pem)
    assert [c.public_key() for c in found] == [
        token.certificate_authority.certificate.public_key() for token in (TOKEN, other)
    ]
