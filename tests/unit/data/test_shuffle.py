"""A shuffle is a bijection, differs by key, and looks random."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.data.shuffle import Shuffle


@settings(deadline=None)
@given(st.integers(1, 700), st.binary(min_size=1, max_size=64))
def test_every_number_goes_somewhere_else(size: int, key: bytes):
    shuffle = Shuffle(size, key)
    assert sorted(map(shuffle, range(size))) == list(range(size))


@given(st.integers(1, 2**63), st.data())
def test_large_bounds_are_kept(size: int, data: st.DataObject):
    shuffle = Shuffle(size, b"k")
    numbers = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=20))
    found = [shuffle(number) for number in numbers]
    assert len(set(found)) == len(numbers)
    assert all(0 <= number < size for number in found)


def test_orders_differ_by_key_and_every_place_is_as_likely():
    orders = [tuple(map(Shuffle(5, bytes([key])), range(5))) for key in range(256)]
    assert len(set(orders)) > 90, "most of the 120 orders of five"
    for place in range(5):
        counts = [[order[place] for order in orders].count(number) for number in range(5)]
        assert max(abs(count - 256 / 5) for count in counts) < 5 * (256 * 0.2 * 0.8) ** 0.5


def test_neighbours_are_torn_apart():
    size = 100_003
    places = [Shuffle(size, b"key")(number) for number in range(2000)]
    jumps = [abs(b - a) / size for a, b in itertools.pairwise(places)]
    assert statistics.fmean(jumps) == pytest.approx(1 / 3, abs=0.03), "as of uniform draws"


@pytest.mark.parametrize("size", [0, -1, 2**63 + 1])
def test_sizes_out_of_range_are_refused(size: int):
    with pytest.raises(ValueError, match="size out of range"):
        Shuffle(size, b"k")


@pytest.mark.parametrize("number", [-1, 10])
def test_numbers_out_of_range_are_refused(number: int):
    with pytest.raises(ValueError, match="number out of range"):
        Shuffle(10, b"k")(number)
