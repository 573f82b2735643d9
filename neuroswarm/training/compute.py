"""The one thread that owns the model.

Runs inner steps back to back and, between two of them, the jobs that others hand in.
Refuses to know what a step or a job does.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import ParamSpec, TypeVar

import torch

from neuroswarm.clock import Clock
from neuroswarm.errors import LifecycleError
from neuroswarm.service import Service, State
from neuroswarm.training.threads import stand_back

logger = logging.getLogger(__name__)


class Rested(enum.Enum):
    """What a step returns that was none."""

    RESTED = "rested"


RESTED = Rested.RESTED

P = ParamSpec("P")
T = TypeVar("T")


class ComputeThread(Service):
    """All forward, backward and optimiser work, one thing at a time, off the event loop.

    A step that ends queues the next one behind the jobs that came in meanwhile, so a job waits
    for one step at most and jobs run in the order of their arrival. Stopping waits for the step
    in progress and for queued jobs.

    Threads: `run` belongs to the event loop; `run_sync`, `start_training`, `pause_training` and
    the counters may be used from any thread.

    Args:
        num_threads: Threads that torch may use within one operation, at least 1.
        clock: Measures the time spent in steps.
    """

    name = "compute"
    stands_back = True
    """Whether the node's other threads go first."""

    def __init__(self, *, num_threads: int, clock: Clock) -> None:
        super().__init__()
        if num_threads < 1:
            raise ValueError(f"num_threads out of range: {num_threads} (at least 1)")
        self.num_steps = 0
        """Steps that ended without an error."""
        self.step_s = 0.0
        """Seconds spent in steps."""
        self.num_threads = num_threads
        """Threads that torch may use from the next step on."""
        self._threads_used = num_threads
        self._clock = clock
        self._started_at = 0.0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._thread_id: int | None = None
        self._training: object | None = None
        self._failure: asyncio.Future[BaseException] | None = None

    @property
    def is_training(self) -> bool:
        """Whether steps are being taken."""
        return self._training is not None

    @property
    def utilisation(self) -> float:
        """Share of the time since `start` spent in steps, 0 to 1."""
        elapsed = self._clock.monotonic() - self._started_at
        return min(1.0, self.step_s / elapsed) if self._pool and elapsed > 0 else 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether steps have stopped that the node does not take itself; see `LentThread`."""
        return False

    @property
    def failure(self) -> BaseException | None:
        """What ended the training, if a step raised since `start`."""
        failure = self._failure
        return failure.result() if failure is not None and failure.done() else None

    async def run(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `job` on the thread, between two steps, and return its result or raise its error.

        Raises:
            LifecycleError: the thread is not running.

        Cancellation: a job that has not begun is dropped; one that has begun is waited for, so
        nothing is left half done. Its result is lost.
        """
        accepted = self._submit(job, *args, **kwargs)
        result = asyncio.wrap_future(accepted)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            accepted.cancel()
            await outlast(result)
            raise

    async def run_promptly(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`: no step here lasts for ever; see `LentThread`."""
        return await self.run(job, *args, **kwargs)

    def run_sync(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, for callers in other threads than the event loop's; blocks.

        On the compute thread itself the job runs at once.

        Raises:
            LifecycleError: the thread is not running.
        """
        if threading.get_ident() == self._thread_id:
            return job(*args, **kwargs)
        return self._submit(job, *args, **kwargs).result()

    def queue(self, job: Callable[[], object]) -> None:
        """Run `job` between two steps, without waiting for it; it must not raise.

        Raises:
            LifecycleError: the thread is not running.
        """
        self._submit(job).add_done_callback(lambda done: done.result())

    def start_training(self, step: Callable[[], object]) -> None:
        """Take steps back to back until `pause_training`; replaces the step being taken so far.

        A step that returns `RESTED` is not counted as one.
        A step that raises ends the training and is reported by `step_failure`; the thread goes
        on serving jobs.

        Raises:
            LifecycleError: the thread is not running.
        """
        training = object()
        with self._lock:
            self._require_running()
            self._training = training
        self._queue_step(training, step)

    def pause_training(self) -> None:
        """Take no further step; the one in progress ends. A step may call this itself."""
        with self._lock:
            self._training = None

    def leave(self) -> None:
        """The node stops: nobody is waited for long from now on; see `LentThread`."""

    async def step_failure(self) -> BaseException:
        """Wait until a step raises; return what. At once if one has since `start`.

        Raises:
            LifecycleError: the thread has not been started.
        """
        if self._failure is None:
            raise LifecycleError("compute thread: not started")
        return await asyncio.shield(self._failure)

    async def _open(self, stack: AsyncExitStack) -> None:
        self._failure = asyncio.get_running_loop().create_future()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="neuroswarm-compute")
        stack.push_async_callback(self._close, self._pool)
        await asyncio.wrap_future(self._pool.submit(self._prepare))
        self._started_at = self._clock.monotonic()

    async def _close(self, pool: ThreadPoolExecutor) -> None:
        self.pause_training()
        with self._lock:
            self._pool = None
        # Not cancellable by the service's own cancellation: a step is never abandoned.
        await outlast(asyncio.ensure_future(asyncio.to_thread(pool.shutdown)))

    def _prepare(self) -> None:
        self._thread_id = threading.get_ident()
        if self.stands_back:
            stand_back()
        torch.set_num_threads(self._threads_used)
        torch.set_flush_denormal(False)

    def _submit(self, job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            return self._require_running().submit(job, *args, **kwargs)

    def _require_running(self) -> ThreadPoolExecutor:
        if self._pool is None:
            state = self.state.name.lower() if self.state is not State.RUNNING else "stopping"
            raise LifecycleError(f"compute thread: not running ({state})")
        return self._pool

    def _queue_step(self, training: object, step: Callable[[], object]) -> None:
        with self._lock:
            if self._pool is None or self._training is not training:
                return
            taken = self._pool.submit(self._take_step, training, step)
        taken.add_done_callback(self._report)

    def _take_step(self, training: object, step: Callable[[], object]) -> None:
        if self._training is not training:
            return
        if self.num_threads != self._threads_used:
            logger.info("threads: %d (%d so far)", self.num_threads, self._threads_used)
            self._threads_used = self.num_threads
            torch.set_num_threads(self._threads_used)
        began = self._clock.monotonic()
        if step() is not RESTED:
            self.step_s += self._clock.monotonic() - began
            self.num_steps += 1
        self._queue_step(training, step)

    def _report(self, taken: Future[None]) -> None:
        error = taken.exception()
        if error is None:
            return
        self.pause_training()
        logger.error("training stopped: %s: %s", type(error).__name__, error)
        assert self._failure is not None, "_open sets it before any step"
        self._failure.get_loop().call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException) -> None:
        assert self._failure is not None, "_open sets it before any step"
        if not self._failure.done():
            self._failure.set_result(error)


async def outlast(future: asyncio.Future[T]) -> None:
    """Wait for `future` however often the waiting task is cancelled; drop its result."""
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            continue
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("after cancellation: %s: %s", type(error).__name__, error)
