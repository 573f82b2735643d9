"""Sets of numbers as bits, both ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuroswarm.data.bits import pack_bits, unpack_bits


@given(st.frozensets(st.integers(0, 70_000), max_size=50))
def test_bits_are_packed_and_unpacked(numbers: frozenset[int]):
    bits = pack_bits(numbers)
    assert bits == sum(1 << number for number in numbers)
    assert unpack_bits(bits) == sorted(numbers)
