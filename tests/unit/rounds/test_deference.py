"""When a node lets its rounds rest, and for how long at most."""

import pytest

from neuroswarm.rounds.deference import MAX_DEFERENCE_S, REST_FACTOR, Deference


def is_due(deference: Deference, now: float, with_me: int = 1, elsewhere: int = 5) -> bool:
    return deference.is_due(now, num_with_me=with_me, num_elsewhere=elsewhere)


@pytest.mark.parametrize(
    ("with_me", "elsewhere", "defers"),
    [(1, 0, False), (1, 1, True), (3, 2, False), (3, 3, True), (2, 4, True), (0, 0, False)],
)
def test_a_node_defers_unless_more_are_with_it(with_me: int, elsewhere: int, defers: bool):
    assert is_due(Deference(), 0.0, with_me, elsewhere) == defers


def test_in_vain_a_node_defers_for_a_bounded_share_of_its_time():
    deference, steps_per_s = Deference(), 4
    times = [step / steps_per_s for step in range(int(100 * MAX_DEFERENCE_S) * steps_per_s)]
    deferred_s = sum(is_due(deference, now) for now in times) / steps_per_s
    assert 9 * MAX_DEFERENCE_S <= deferred_s <= 10 * MAX_DEFERENCE_S


def test_a_node_that_found_the_others_defers_again_the_next_time():
    deference = Deference()
    assert is_due(deference, 0.0)
    assert is_due(deference, MAX_DEFERENCE_S - 1)
    assert not is_due(deference, MAX_DEFERENCE_S - 0.5, with_me=6, elsewhere=0)
    assert is_due(deference, MAX_DEFERENCE_S)
    assert is_due(deference, 2 * MAX_DEFERENCE_S - 1)


def test_a_node_that_comes_nearer_after_a_vain_deference_defers_until_it_is_there():
    deference = Deference()
    assert is_due(deference, 0.0)
    assert not is_due(deference, MAX_DEFERENCE_S)
    deference.found_the_way()
    assert is_due(deference, MAX_DEFERENCE_S + 1)
    assert is_due(deference, 2 * MAX_DEFERENCE_S)


def test_after_a_vain_deference_it_goes_on_by_itself_for_long():
    deference = Deference()
    assert is_due(deference, 0.0)
    assert not is_due(deference, MAX_DEFERENCE_S)
    assert not is_due(deference, MAX_DEFERENCE_S * REST_FACTOR)
    assert is_due(deference, MAX_DEFERENCE_S * (1 + REST_FACTOR))
