"""Signals: the first stops gracefully, the second leaves at once."""

import asyncio
import os
import signal
import threading
from types import TracebackType

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.signals import StopSignals, Watchdog, run_service
from neuroswarm.errors import ConfigError


class Recorder:
    """A service that writes down what happens to it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __aenter__(self) -> "Recorder":
        self.events.append("started")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)
        self.events.append("stopped")


def test_service_stops_when_its_work_is_done():
    service = Recorder()

    async def work(running: Recorder) -> None:
        running.events.append("worked")

    run_service(lambda: service, work)
    assert service.events == ["started", "worked", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_first_signal_stops_gracefully(number: signal.Signals):
    service = Recorder()

    async def work(running: Recorder) -> None:
        os.kill(os.getpid(), number)
        await asyncio.get_running_loop().create_future()

    before = signal.signal(number, signal.SIG_DFL)  # nohup may have it ignored
    try:
        run_service(lambda: service, work)
    finally:
        signal.signal(number, before)
    assert service.events == ["started", "stopped"]


def test_errors_of_the_work_stop_the_service_and_reach_the_caller():
    service = Recorder()

    async def work(running: Recorder) -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        run_service(lambda: service, work)
    assert service.events == ["started", "stopped"]


def test_cancellation_by_others_is_not_taken_for_a_signal():
    async def work(running: Recorder) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_service(Recorder, work)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)

    async def work(running: Recorder) -> None:
        assert signal.getsignal(signal.SIGTERM) is not before

    run_service(Recorder, work)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_second_signal_leaves_at_once_with_the_signals_code():
    left: list[int] = []
    task = asyncio.ensure_future(asyncio.get_running_loop().create_future())
    watchdog = Watchdog(left.append)
    signals = StopSignals(task, left.append, watchdog)  # type: ignore[arg-type]
    signals.on_signal(signal.SIGTERM)
    assert (signals.has_cancelled, left) == (True, [])
    signals.on_signal(signal.SIGTERM)
    assert left == [128 + signal.SIGTERM]
    watchdog.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_end_of_a_terminal_is_never_a_second_signal(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    left: list[int] = []
    future = asyncio.get_running_loop().create_future()
    watchdog = Watchdog(left.append)
    signals = StopSignals(future, left.append, watchdog)  # type: ignore[arg-type]
    signals.on_signal(signal.SIGHUP)
    assert future.cancelled()
    assert caplog.messages == ["stopping (SIGHUP)"], "nobody is told to send a second one"
    signals.on_signal(signal.SIGHUP)
    signals.begin_stop()
    signals.on_signal(signal.SIGHUP)
    assert left == []
    watchdog.cancel()


def test_the_end_of_a_terminal_that_is_ignored_stops_nothing():
    service = Recorder()

    async def work(running: Recorder) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        running.events.append("worked")

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run_service(lambda: service, work)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert service.events == ["started", "worked", "stopped"]


async def test_signal_during_the_stop_does_not_disturb_it():
    left: list[int] = []
    future = asyncio.get_running_loop().create_future()
    watchdog = Watchdog(left.append)
    signals = StopSignals(future, left.append, watchdog)  # type: ignore[arg-type]
    signals.begin_stop()
    signals.on_signal(signal.SIGTERM)
    assert not future.cancelled()
    assert left == []
    signals.on_signal(signal.SIGINT)
    assert left == [128 + signal.SIGINT]
    watchdog.cancel()


def test_a_stop_that_was_asked_for_ends_in_time_with_code_0():
    left: list[int] = []
    has_left = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        has_left.set()

    watchdog = Watchdog(leave)
    watchdog.start(0.001, ExitCode.OK)
    watchdog.start(60.0, ExitCode.STOP_HANGS)  # the stop begins: no more time than before
    assert has_left.wait(10)
    assert left == [ExitCode.OK]


def test_the_end_of_a_run_that_hangs_is_an_error():
    left: list[int] = []
    has_left = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        has_left.set()

    Watchdog(leave).start(0.001, ExitCode.STOP_HANGS)
    assert has_left.wait(10)
    assert left == [ExitCode.STOP_HANGS]


def test_a_service_is_made_before_the_event_loop_runs():
    def make() -> Recorder:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return Recorder()

    async def work(running: Recorder) -> None:
        assert running.events == ["started"]

    run_service(make, work)
