"""Swarm tokens: text form, refusals that do not repeat the secret, derived keys."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import AdmissionError
from neuroswarm.identity.token import SwarmToken

TOKEN = SwarmToken(bytes(range(32)))
TEXT = "nswarm-aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dyp5l4bd"
GOLDEN_DATAGRAM_KEY = "2ccfc40b62193f7c2b28cd0150be37e044cf56322950ee3f7339dfdb8fd221c7"
GOLDEN_FINGERPRINT = "5d6ec16e"
GOLDEN_AUTHORITY_KEY_END = "31fb7ef3c0a387fddf0b0578228b0130"


def get_authority_key(token: SwarmToken) -> bytes:
    public_key = token.certificate_authority.certificate.public_key()
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@given(st.binary(min_size=32, max_size=32))
def test_text_reads_back_as_the_same_token(secret: bytes):
    token = SwarmToken(secret)
    assert SwarmToken.parse(token.text) == token
    assert SwarmToken.parse(f"  {token.text.upper()}\n") == token


def test_new_tokens_differ():
    assert SwarmToken.new() != SwarmToken.new()


def test_text_and_derived_keys_never_change_between_releases():
    """A swarm's nodes of different releases must derive the same."""
    assert TOKEN.text == TEXT
    assert TOKEN.datagram_key.hex() == GOLDEN_DATAGRAM_KEY
    assert TOKEN.fingerprint == GOLDEN_FINGERPRINT
    assert get_authority_key(TOKEN).hex()[-32:] == GOLDEN_AUTHORITY_KEY_END


@pytest.mark.parametrize("position", range(len("nswarm-"), len(TEXT)))
def test_one_wrong_letter_is_noticed(position: int):
    wrong = "b" if TEXT[position] == "a" else "a"
    with pytest.raises(AdmissionError, match="checksum"):
        SwarmToken.parse(TEXT[:position] + wrong + TEXT[position + 1 :])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not start"),
        ("password", "does not start"),
        ("nswarm-", "0 characters"),
        (TEXT[:-1], "55 characters"),
        (TEXT + "a", "57 characters"),
        (TEXT[:-1] + "1", "letters a-z and digits 2-7"),
        (TEXT[:-1] + "=", "checksum"),
        (TEXT[:-1] + "\u00e9", "letters a-z and digits 2-7"),
    ],
    ids=["empty", "prefix", "nothing after", "short", "long", "digit", "padding", "accent"],
)
def test_malformed_token_is_refused_with_a_reason_that_does_not_repeat_it(text: str, reason: str):
    with pytest.raises(AdmissionError, match=reason) as caught:
        SwarmToken.parse(text)
    assert len(text) < 10 or text[10:30] not in str(caught.value)


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str):
    try:
        SwarmToken.parse(text)
    except AdmissionError:
        return
    assert text.strip().lower().startswith("nswarm-")


def test_keys_of_different_tokens_and_purposes_differ():
    other = SwarmToken(bytes(32))
    assert TOKEN.datagram_key != other.datagram_key
    assert TOKEN.fingerprint != other.fingerprint
    assert get_authority_key(TOKEN) != get_authority_key(other)
    assert TOKEN.derive("one", 32) != TOKEN.derive("two", 32)


def test_every_holder_derives_the_same_authority():
    """The certificates differ by their random signatures; subject and key do not."""
    again = SwarmToken(bytes(range(32)))
    assert get_authority_key(TOKEN) == get_authority_key(again)
    assert (
        TOKEN.certificate_authority.certificate.subject
        == again.certificate_authority.certificate.subject
    )


def test_only_the_open_token_is_open():
    assert SwarmToken.OPEN.is_open
    assert SwarmToken.parse(SwarmToken.OPEN.text).is_open
    assert not TOKEN.is_open


def test_repr_shows_no_secret():
    assert repr(TOKEN) == "SwarmToken()"


def test_secret_of_another_length_is_a_programming_error():
    with pytest.raises(ValueError, match="31 bytes"):
        SwarmToken(bytes(31))
