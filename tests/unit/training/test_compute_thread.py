import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import torch

from neuroswarm.clock import SystemClock
from neuroswarm.errors import LifecycleError
from neuroswarm.training.compute import ComputeThread


@pytest.fixture
async def compute() -> AsyncIterator[ComputeThread]:
    async with ComputeThread(num_threads=1, clock=SystemClock()) as thread:
        yield thread


class Gate:
    """A job that says when it began and waits to be let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.released = threading.Event()
        self.ended = False

    def __call__(self) -> str:
        self.began.set()
        assert self.released.wait(10)
        self.ended = True
        return "done"

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self.began.wait, 10)


def counting(limit: int, then: Callable[[], object]) -> Callable[[], None]:
    """A step that calls `then` the `limit`th time."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == limit:
            then()

    return step


async def test_jobs_and_steps_share_one_thread_with_its_settings(compute: ComputeThread):
    seen: set[int] = set()
    enough = threading.Event()
    count_up = counting(5, enough.set)

    def step() -> None:
        seen.add(threading.get_ident())
        count_up()

    compute.start_training(step)
    assert await asyncio.to_thread(enough.wait, 10)
    seen.add(await compute.run(threading.get_ident))
    seen.add(await asyncio.to_thread(compute.run_sync, threading.get_ident))
    assert len(seen) == 1
    assert threading.get_ident() not in seen
    assert await compute.run(torch.get_num_threads) == 1


async def test_denormal_numbers_are_kept(compute: ComputeThread):
    assert await compute.run(lambda: float(torch.tensor([1e-40]) * 0.5)) > 0


async def test_a_job_waits_for_one_step_at_most(compute: ComputeThread):
    gate, steps = Gate(), []

    def step() -> None:
        steps.append(1)
        if len(steps) == 1:
            gate()

    compute.start_training(step)
    await gate.wait_begun()
    job = asyncio.ensure_future(compute.run(lambda: len(steps)))
    await asyncio.sleep(0)
    gate.released.set()
    assert await job == 1


async def test_steps_go_on_after_jobs_and_their_errors(compute: ComputeThread):
    enough = threading.Event()
    compute.start_training(counting(1000, enough.set))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await compute.run(lambda: 1 // 0)
    assert await asyncio.to_thread(enough.wait, 10)
    assert compute.is_training


async def test_no_step_begins_after_a_pause(compute: ComputeThread):
    steps: list[int] = []
    begun = threading.Event()

    def step() -> None:
        steps.append(1)
        begun.set()

    compute.start_training(step)
    assert await asyncio.to_thread(begun.wait, 10)
    compute.pause_training()
    before = await compute.run(lambda: len(steps))
    for _ in range(3):
        assert await compute.run(lambda: len(steps)) == before
    assert not compute.is_training
    assert compute.num_steps == before
    assert 0 <= compute.utilisation <= 1


async def test_a_step_may_pause_the_training_and_a_later_start_goes_on(compute: ComputeThread):
    paused = threading.Event()

    def pause() -> None:
        compute.pause_training()
        paused.set()

    for expected in (3, 6):
        paused.clear()
        compute.start_training(counting(3, pause))
        assert await asyncio.to_thread(paused.wait, 10)
        assert await compute.run(lambda: compute.num_steps) == expected


async def test_starting_again_replaces_the_step(compute: ComputeThread):
    gate, after = Gate(), []
    compute.start_training(gate)
    await gate.wait_begun()
    enough = threading.Event()
    compute.start_training(counting(3, enough.set))
    gate.began.clear()
    gate.released.set()
    assert await asyncio.to_thread(enough.wait, 10)
    assert not gate.began.is_set()
    assert not after


async def test_a_failing_step_is_reported_and_jobs_still_run(compute: ComputeThread):
    def step() -> None:
        raise FloatingPointError("bad weights")

    compute.start_training(step)
    async with asyncio.timeout(10):
        error = await compute.step_failure()
    assert isinstance(error, FloatingPointError)
    assert not compute.is_training
    assert await compute.run(lambda: "alive") == "alive"
    assert await compute.step_failure() is error


async def test_cancelling_waits_for_a_job_that_has_begun_even_when_repeated(
    compute: ComputeThread,
):
    gate = Gate()
    job = asyncio.ensure_future(compute.run(gate))
    await gate.wait_begun()
    for _ in range(3):
        job.cancel()
        await asyncio.sleep(0)
        assert not job.done()
    gate.released.set()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert gate.ended


async def test_cancelling_drops_a_job_that_has_not_begun(compute: ComputeThread):
    gate, ran = Gate(), []
    first = asyncio.ensure_future(compute.run(gate))
    await gate.wait_begun()
    second = asyncio.ensure_future(compute.run(ran.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.released.set()
    assert await first == "done"
    assert await compute.run(lambda: list(ran)) == []


async def test_the_event_loop_runs_while_a_job_runs(compute: ComputeThread):
    gate = Gate()
    job = asyncio.ensure_future(compute.run(gate))
    await gate.wait_begun()
    assert not job.done()
    gate.released.set()
    assert await job == "done"


async def test_a_job_may_run_another_on_the_same_thread(compute: ComputeThread):
    assert await compute.run(lambda: compute.run_sync(lambda: 42)) == 42


async def test_stopping_lets_the_step_and_queued_jobs_end():
    compute = ComputeThread(num_threads=1, clock=SystemClock())
    await compute.start()
    gate, ran = Gate(), []
    compute.start_training(gate)
    await gate.wait_begun()
    job = asyncio.ensure_future(compute.run(ran.append, 1))
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(compute.stop())
    while compute.is_training:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0)
    gate.released.set()
    await stopping
    await job
    assert gate.ended
    assert ran == [1]
    assert compute.num_steps == 1


async def test_a_stopped_thread_refuses_work():
    compute = ComputeThread(num_threads=1, clock=SystemClock())
    with pytest.raises(LifecycleError, match="new"):
        await compute.run(lambda: 1)
    with pytest.raises(LifecycleError):
        await compute.step_failure()
    await compute.start()
    await compute.stop()
    for attempt in (lambda: compute.run_sync(int), lambda: compute.start_training(int)):
        with pytest.raises(LifecycleError, match="stopped"):
            attempt()
    assert compute.utilisation == 0.0


def test_threads_are_counted_from_one():
    with pytest.raises(ValueError, match="num_threads"):
        ComputeThread(num_threads=0, clock=SystemClock())
