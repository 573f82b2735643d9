import signal
import threading
from collections.abc import Iterator

import pytest

from neuroswarm.training.interrupts import Interrupts


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_comes_once_what_it_would_tear_is_whole():
    ended = False
    with pytest.raises(KeyboardInterrupt), Interrupts().held_back():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        ended = True
    assert ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_may_be_interrupted_inside_is():
    interrupts, reached = Interrupts(), []
    with pytest.raises(KeyboardInterrupt), interrupts.held_back():  # noqa: PT012
        with interrupts.allowed():
            reached.append("first")
        with interrupts.allowed():
            signal.raise_signal(signal.SIGINT)
            reached.append("never")
    assert reached == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_waits_comes_before_what_may_be_interrupted():
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt), interrupts.held_back():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        with interrupts.allowed():
            pytest.fail("the interrupt was there before")


def test_the_handler_of_termination_is_called_after_it():
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: calls.append(number))
    with Interrupts().held_back():
        signal.raise_signal(signal.SIGTERM)
        assert calls == []
    assert calls == [signal.SIGTERM]


def test_other_threads_are_left_alone():
    done: list[bool] = []

    def work() -> None:
        interrupts = Interrupts()
        with interrupts.held_back(), interrupts.allowed():
            done.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
