import asyncio
import threading
from _thread import interrupt_main
from collections.abc import AsyncIterator

import pytest

from neuroswarm.clock import SystemClock
from neuroswarm.errors import ComputeError, LifecycleError
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.training.lent import LEAVE_S, STALL_S, LentThread

# The test's own thread is both the loop's and the event loop's: what waits for a job there would
# wait for ever, so jobs are handed in as tasks, and looked at between two turns.


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def lent(clock: FakeClock) -> AsyncIterator[LentThread]:
    async with LentThread(num_threads=1, clock=clock) as thread:
        yield thread


async def test_until_the_loop_has_come_jobs_run_at_once(lent: LentThread):
    assert lent.is_lent
    assert await lent.run(threading.get_ident) != threading.get_ident()


async def test_jobs_wait_for_the_loop_and_run_in_their_order_on_the_nodes_thread(
    lent: LentThread,
):
    lent.take()
    ran: list[tuple[int, int]] = []
    jobs = [
        asyncio.ensure_future(lent.run(lambda i=i: ran.append((i, threading.get_ident()))))
        for i in range(3)
    ]
    lent.queue(lambda: ran.append((3, threading.get_ident())))
    await asyncio.sleep(0)
    assert ran == []
    lent.serve()
    assert [number for number, _ in ran] == [3, 0, 1, 2]  # tasks began after `queue`
    assert threading.get_ident() not in {thread for _, thread in ran}
    await asyncio.gather(*jobs)
    lent.serve()
    assert len(ran) == 4


async def test_what_comes_after_the_model_was_taken_back_waits_for_the_next_step(
    lent: LentThread,
):
    lent.take()
    ran: list[int] = []
    lent.queue(lambda: lent.queue(lambda: ran.append(2)))
    lent.serve()
    assert ran == []
    lent.serve()
    assert ran == [2]


async def test_errors_of_jobs_reach_who_asked_and_not_the_loop(lent: LentThread):
    lent.take()
    job = asyncio.ensure_future(lent.run(lambda: 1 // 0))
    await asyncio.sleep(0)
    lent.serve()
    with pytest.raises(ZeroDivisionError):
        await job


async def test_a_cancelled_job_that_waits_is_dropped(lent: LentThread):
    lent.take()
    ran: list[int] = []
    job = asyncio.ensure_future(lent.run(ran.append, 1))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    lent.serve()
    assert ran == []


async def test_while_it_is_lent_jobs_need_no_step(lent: LentThread):
    lent.take()
    job = asyncio.ensure_future(lent.run(lambda: "done"))
    await asyncio.sleep(0)
    with lent.lent():
        assert await job == "done"
        with lent.lent():
            assert await lent.run(lambda: "again") == "again"
        assert lent.is_lent
    assert not lent.is_lent


def test_an_interrupt_from_the_keyboard_tears_no_job_apart():
    # Not on an event loop: it would take the interrupt for itself.
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    lent = LentThread(num_threads=1, clock=SystemClock())
    asyncio.run_coroutine_threadsafe(lent.start(), loop).result()
    lent.take()
    ended = threading.Event()

    def job() -> None:
        interrupt_main()
        threading.Event().wait(0.2)  # the loop's thread has time to run away
        ended.set()

    lent.queue(job)
    with pytest.raises(KeyboardInterrupt):
        lent.serve()
    assert ended.is_set()
    asyncio.run_coroutine_threadsafe(lent.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()


async def test_a_loop_that_is_elsewhere_is_noticed_and_not_waited_for(
    lent: LentThread, clock: FakeClock
):
    lent.take()
    lent.count_step()
    assert not lent.is_stalled
    job = asyncio.ensure_future(lent.run_promptly(lambda: "a copy"))
    await asyncio.sleep(0)
    clock.stop(STALL_S + 1)
    assert lent.is_stalled
    with pytest.raises(ComputeError, match="did not come to its step"):
        await job
    lent.count_step()
    assert not lent.is_stalled


async def test_who_steps_slowly_has_more_patience_shown(lent: LentThread, clock: FakeClock):
    lent.take()
    for _ in range(2):
        clock.stop(30)
        lent.count_step()
    clock.stop(3 * 30)
    assert not lent.is_stalled
    clock.stop(2 * 30)
    assert lent.is_stalled
    assert lent.step_s == 60
    assert lent.num_steps == 2


async def test_nobody_is_missed_while_the_model_is_lent(lent: LentThread, clock: FakeClock):
    lent.take()
    lent.count_step()
    with lent.lent():
        clock.stop(10 * STALL_S)
        assert not lent.is_stalled
    assert not lent.is_stalled
    clock.stop(1)
    lent.count_step()
    assert lent.step_s == 1  # the pause was no step


async def test_a_node_that_leaves_on_the_loops_thread_has_the_model_for_good(lent: LentThread):
    lent.take()
    job = asyncio.ensure_future(lent.run(lambda: "saved"))
    await asyncio.sleep(0)
    lent.leave()
    assert await job == "saved"


async def test_half_an_update_is_never_read(lent: LentThread, clock: FakeClock):
    lent.take()
    with pytest.raises(KeyboardInterrupt), lent.stepping():
        raise KeyboardInterrupt
    lent.leave()
    job = asyncio.ensure_future(lent.run(lambda: "torn"))
    await asyncio.sleep(0)
    clock.stop(LEAVE_S + 1)
    with pytest.raises(ComputeError, match="did not come"):
        await job


async def test_an_interrupt_within_a_closure_leaves_no_half_update(lent: LentThread):
    lent.take()
    with pytest.raises(KeyboardInterrupt), lent.stepping(), lent.stepping(writes=False):
        raise KeyboardInterrupt
    lent.leave()
    assert await lent.run(lambda: "whole") == "whole"


async def test_a_node_that_leaves_elsewhere_waits_for_a_step_but_not_for_ever(clock: FakeClock):
    async with LentThread(num_threads=1, clock=clock) as lent:
        lent.take()
        await asyncio.to_thread(lent.leave)
        first = asyncio.ensure_future(lent.run(lambda: "served"))
        await asyncio.sleep(0)
        lent.serve()
        assert await first == "served"
        second = asyncio.ensure_future(lent.run(lambda: "late"))
        await asyncio.sleep(0)
        clock.stop(LEAVE_S + 1)
        with pytest.raises(ComputeError, match="did not come"):
            await second


async def test_a_loop_outlives_the_thread():
    lent = LentThread(num_threads=1, clock=SystemClock())
    await lent.start()
    lent.take()
    job = asyncio.ensure_future(lent.run(lambda: "never"))
    await asyncio.sleep(0)
    await lent.stop()
    with pytest.raises(LifecycleError, match="stopping"):
        await job
    lent.serve()
    with lent.lent(), pytest.raises(LifecycleError, match="stopped"):
        await lent.run(lambda: "never")
    assert not lent.is_lent
