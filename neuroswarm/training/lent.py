"""The thread that owns a model while nobody else does.

Somebody's own loop trains the model; the node's jobs wait until the loop lends it, which it does
at the end of each step. Refuses to know what a job does and how the loop trains.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch

from neuroswarm.clock import Clock
from neuroswarm.errors import ComputeError, LifecycleError
from neuroswarm.training.compute import ComputeThread, outlast

P = ParamSpec("P")
T = TypeVar("T")

STALL_S = 10.0
"""A loop that was not at its step for so long, and for `STALL_INTERVALS` of its usual steps, is
taken to be elsewhere."""

STALL_INTERVALS = 4

LEAVE_S = 5.0
"""Longest wait for the loop's next step once the node stops."""

_LOOK_S = 0.1
_FADING = 0.9
"""How fast a long step is forgotten in what is usual."""


class LentThread(ComputeThread):
    """A `ComputeThread` that takes no steps, and runs jobs only while the model is lent to it.

    The model is lent (1) until the loop has come, (2) in `serve`, which the loop calls after each
    step and which runs the jobs that wait, (3) inside `lent`, (4) after `yield_for_good`. Jobs run
    on this thread in the order of their arrival, never on the loop's: so an interrupt from the
    keyboard does not tear one apart, and autocast, streams and thread settings of the loop do
    not reach them.

    Threads: `take`, `give_back`, `stepping`, `count_step`, `serve` and `lent` belong to the loop;
    the rest as in `ComputeThread`.
    """

    stands_back = False  # the loop waits for its jobs

    def __init__(self, *, num_threads: int, clock: Clock) -> None:
        super().__init__(num_threads=num_threads, clock=clock)
        self._parked: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_lent = True
        self._is_leaving = False
        self._is_stepping = False
        self._loop_thread: int | None = None
        self._seen_at: float | None = None
        """When the loop last had the model back; None before it came."""
        self._interval_s = 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether the loop was not at its step for so long that nobody should wait for it."""
        seen_at = self._seen_at
        if seen_at is None or self._is_lent:
            return False
        patience_s = max(STALL_S, STALL_INTERVALS * self._interval_s)
        return self._clock.monotonic() - seen_at > patience_s

    @property
    def is_lent(self) -> bool:
        """Whether the loop does not use the model now."""
        return self._is_lent

    # -- the loop --------------------------------------------------------------------

    def take(self) -> None:
        """The loop has the model from now on; returns once the job in progress has ended."""
        self._loop_thread = threading.get_ident()
        self._seen_at = self._clock.monotonic()
        self._take_back()

    def give_back(self) -> None:
        """The loop does without the model after all."""
        self._lend()

    @contextmanager
    def stepping(self, *, writes: bool = True) -> Iterator[None]:
        """Inside, the loop writes to the model: nobody is to read half of an update.

        Args:
            writes: Whether it does; False inside of another `stepping`, for what reads only.
        """
        self._loop_thread = threading.get_ident()
        self._is_stepping = writes
        yield
        self._is_stepping = not writes  # not after an error: the update may be half done

    def count_step(self) -> None:
        """The loop has taken a step; the time since the last one was spent on it."""
        now = self._clock.monotonic()
        if self._seen_at is not None:
            took_s = now - self._seen_at
            self.step_s += took_s
            self._interval_s = max(took_s, _FADING * self._interval_s)
        self.num_steps += 1
        self._seen_at = now

    def serve(self) -> None:
        """Run the jobs that wait, and return once they have ended. At once if none does.

        Never waits for anything but these jobs, which are local.
        """
        with self._lock:
            if not self._parked:
                return
        _synchronize()
        with self._lock:
            self._hand_over()
            barrier = self._barrier()
        _wait_for(barrier)
        self._seen_at = self._clock.monotonic()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, jobs run as they come: the loop promises not to use the model.

        On leaving, the job in progress is waited for.
        """
        if self._is_lent:
            yield
            return
        _synchronize()
        self._lend()
        try:
            yield
        finally:
            if not self._is_leaving:
                self._take_back()
            self._seen_at = self._clock.monotonic()

    # -- the node --------------------------------------------------------------------

    async def run_promptly(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`; gives up on a job that has not begun when the loop is elsewhere.

        Raises:
            ComputeError: it is elsewhere.
        """
        return await self._outcome(self._submit(job, *args, **kwargs), lambda: self.is_stalled)

    async def run(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `ComputeThread.run`; waits for the loop's step, but not for long once it leaves.

        Raises:
            LifecycleError: the thread is not running.
            ComputeError: the node stops, and the loop does not come to its step.
        """
        return await self._outcome(self._submit(job, *args, **kwargs), lambda: False)

    def leave(self) -> None:
        """The node stops: from now on the loop is waited for `LEAVE_S` at most.

        On the loop's own thread, which does nothing else until the node has stopped, the model is
        lent for good, unless it was interrupted in the middle of an update.
        """
        self._is_leaving = True
        if threading.get_ident() == self._loop_thread and not self._is_stepping:
            self._lend()

    async def _close(self, pool: ThreadPoolExecutor) -> None:
        await super()._close(pool)
        while self._parked:
            parked, _ = self._parked.popleft()
            if parked.set_running_or_notify_cancel():
                parked.set_exception(LifecycleError("compute thread: not running (stopping)"))

    # -- inside ----------------------------------------------------------------------

    def _submit(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            pool = self._require_running()
            if self._is_lent:
                return pool.submit(job, *args, **kwargs)
            parked: Future[T] = Future()
            self._parked.append((parked, lambda: job(*args, **kwargs)))
            return parked

    def _hand_over(self) -> None:
        """Let the thread have what waits; the lock is held."""
        while self._parked and self._pool is not None:
            promised, job = self._parked.popleft()
            done = self._pool.submit(_do_unless_dropped, promised, job)
            done.add_done_callback(partial(_pass_on, promised))

    def _barrier(self) -> Future[None] | None:
        """Done once all that was handed over is; the lock is held."""
        return None if self._pool is None else self._pool.submit(_synchronize)

    def _lend(self) -> None:
        with self._lock:
            self._is_lent = True
            self._hand_over()

    def _take_back(self) -> None:
        with self._lock:
            self._is_lent = False
            barrier = self._barrier()
        _wait_for(barrier)

    async def _outcome(self, accepted: Future[T], is_given_up: Callable[[], bool]) -> T:
        result = asyncio.wrap_future(accepted)
        began = self._clock.monotonic()
        try:
            while not result.done():
                await asyncio.wait({result}, timeout=_LOOK_S)
                waited_s = self._clock.monotonic() - began
                is_late = self._is_leaving and waited_s > LEAVE_S
                if (is_late or is_given_up()) and accepted.cancel():
                    raise ComputeError(
                        f"the training loop did not come to its step within {waited_s:.0f} s"
                    )
            return result.result()
        except asyncio.CancelledError:
            accepted.cancel()
            await outlast(result)
            raise


def _do_unless_dropped(promised: Future[Any], job: Callable[[], Any]) -> Any:
    """Do a job that was waiting; nothing if whoever waits for it has dropped it meanwhile."""
    return job() if promised.set_running_or_notify_cancel() else None


def _pass_on(promised: Future[Any], done: Future[Any]) -> None:
    """Give what became of a job to whoever waits for it."""
    if promised.cancelled():
        return
    error = done.exception()
    if error is None:
        promised.set_result(done.result())
    else:
        promised.set_exception(error)


def _wait_for(barrier: Future[None] | None) -> None:
    """Wait for the thread to get so far, also if the keyboard interrupts: it has the model."""
    if barrier is not None:
        try:
            barrier.result()
        finally:
            barrier.result()


def _synchronize() -> None:
    """Wait for the accelerator: the next one to use the model may do so on another stream."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
