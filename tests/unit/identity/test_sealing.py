"""Seals: what was sealed comes back, everything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.errors import BadSignature
from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.identity.token import SwarmToken

SEALER = Sealer(SwarmToken(bytes(range(32))).datagram_key)


@given(st.binary(max_size=2000), st.binary(max_size=50))
def test_sealed_bytes_come_back(data: bytes, context: bytes):
    sealed = SEALER.seal(data, context)
    assert len(sealed) == len(data) + OVERHEAD_BYTES
    assert SEALER.open(sealed, context) == data


def test_sealing_twice_gives_different_bytes():
    assert SEALER.seal(b"same") != SEALER.seal(b"same")


def test_other_key_and_other_context_do_not_open_it():
    sealed = SEALER.seal(b"text", b"datagram")
    with pytest.raises(BadSignature):
        Sealer(bytes(32)).open(sealed, b"datagram")
    with pytest.raises(BadSignature):
        SEALER.open(sealed, b"tracker")


def test_every_flipped_bit_is_noticed():
    sealed = SEALER.seal(b"text")
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSignature):
            SEALER.open(bytes(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes):
    with pytest.raises(BadSignature):
        SEALER.open(data)
