"""Who holds most, and what of it ends first, compared with looking through everything."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.dht.shares import Ends, Place, Shares
from neuroswarm.values import NodeId


def place(number: int) -> Place:
    return number.to_bytes(20, "big"), NodeId(bytes(20))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 5)), max_size=80))
def test_shares_are_those_of_a_full_count_after_any_history(events: list[tuple[int, int, int]]):
    shares, held = Shares(), dict[Place, tuple[str, float]]()
    for holder, number, end in events:
        here = place(number)
        if here in held:
            shares.remove(held.pop(here)[0], here)
        else:
            shares.add(str(holder), here, float(end))
            held[here] = str(holder), float(end)
        counts = Counter(holder for holder, _ in held.values())
        assert {str(h): shares.count(str(h)) for h in range(4)} == {
            str(h): counts[str(h)] for h in range(4)
        }
        assert len(shares) == len(counts)
        if held:
            most, first = shares.first_of_most()
            assert most == max(counts.values()) == counts[held[first][0]]
            ends = [end for h, end in held.values() if h == held[first][0]]
            assert held[first][1] == min(ends)


def test_place_whose_end_is_put_off_ends_then():
    ends = Ends()
    ends.add(place(1), 5.0)
    ends.add(place(2), 6.0)
    ends.add(place(1), 7.0)
    assert ends.first() == (6.0, place(2))
    ends.discard(place(2))
    assert ends.first() == (7.0, place(1))
    ends.discard(place(1))
    assert ends.first() is None


def test_places_that_are_renewed_for_ever_take_no_more_memory():
    ends = Ends()
    for end in range(10_000):
        ends.add(place(end % 10), float(end))
    assert len(ends) == 10
    assert len(ends._heap) < 50
