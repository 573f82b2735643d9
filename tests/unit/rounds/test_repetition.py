"""What was said is said again after 1, 2, 4 ... 60 seconds, and anew after each new word."""

from __future__ import annotations

from neuroswarm.rounds.repetition import Repetition


def list_due(repetition: Repetition, first: int, last: int) -> list[int]:
    return [now for now in range(first, last) if repetition.is_due(now)]


def test_nothing_is_due_before_anything_was_said():
    assert list_due(Repetition(), 0, 1000) == []


def test_pauses_double_up_to_a_minute():
    repetition = Repetition()
    repetition.said_something(10)
    assert list_due(repetition, 10, 260) == [11, 13, 17, 25, 41, 73, 133, 193, 253]


def test_a_new_word_is_repeated_soon_again():
    repetition = Repetition()
    repetition.said_something(0)
    assert list_due(repetition, 0, 60) == [1, 3, 7, 15, 31]
    repetition.said_something(60)
    assert list_due(repetition, 60, 70) == [61, 63, 67]
