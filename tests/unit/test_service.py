"""Work that is given to a service before it runs, while it runs, and after."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from neuroswarm.errors import LifecycleError
from neuroswarm.service import Service, State
from neuroswarm.testing.waiting import until


class Worker(Service):
    """Notes which work was done."""

    name = "worker"

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.done: list[str] = []
        self._fails = fails

    async def _open(self, stack: AsyncExitStack) -> None:
        self.give("while it starts")
        if self._fails:
            raise LifecycleError("it cannot start")

    def give(self, name: str) -> None:
        async def work() -> None:
            self.done.append(name)

        self._spawn(work())


async def test_work_given_before_a_service_runs_is_done_once_it_does():
    worker = Worker()
    worker.give("before it starts")
    async with worker:
        worker.give("while it runs")
        await until(lambda: len(worker.done) == 3)
    assert worker.done == ["before it starts", "while it starts", "while it runs"]


async def test_work_given_to_a_service_that_never_runs_is_dropped():
    failing, unused = Worker(fails=True), Worker()
    failing.give("before it starts")
    with pytest.raises(LifecycleError):
        await failing.start()
    unused.give("before it starts")
    await unused.stop()
    unused.give("after the end")
    assert failing.state is State.FAILED
    assert failing.done == unused.done == []
