"""Lifecycle of a node's long-lived parts: started once, stopped once, owner of its tasks.

Knows nothing of what the parts do.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

from neuroswarm.errors import LifecycleError

logger = logging.getLogger(__name__)


class State(enum.Enum):
    """Where a service is in its life; `_ALLOWED` has the transitions."""

    NEW, STARTING, RUNNING, STOPPING, STOPPED, FAILED = range(6)


_ALLOWED: dict[State, set[State]] = {
    State.NEW: {State.STARTING, State.STOPPED},
    State.STARTING: {State.RUNNING, State.STOPPING, State.FAILED},
    State.RUNNING: {State.STOPPING, State.FAILED},
    State.STOPPING: {State.STOPPED, State.FAILED},
    State.STOPPED: set(),
    State.FAILED: set(),
}


class Service(ABC):
    """Base of every long-lived part; nothing else starts tasks."""

    name: str

    def __init__(self) -> None:
        self.state = State.NEW
        self._runner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._early: list[Coroutine[Any, Any, None]] = []

    @abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Acquire sockets, channels and executors onto `stack`; return once ready to serve."""

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Background loops to run until `stop`; one that raises fails the service."""
        return ()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one piece of work beside the loops until it ends or the service stops.

        What comes before the service runs begins when it does. Work that raises fails the
        service; once the service is stopping, nothing is started.
        """
        if self.state in (State.NEW, State.STARTING):
            self._early.append(work)
        elif self._tasks is None or self.state is not State.RUNNING:
            work.close()
        else:
            self._tasks.create_task(work, name=f"{self.name}.{getattr(work, '__name__', 'work')}")

    async def start(self) -> None:
        """Open and return once ready; if opening fails, release everything and raise why."""
        self._move(State.STARTING)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._main(ready), name=f"{self.name}.main")
        try:
            await asyncio.wait({self._runner, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        if not ready.done():
            ready.cancel()
            await self._runner  # raises why it never became ready

    async def stop(self) -> None:
        """Stop and release everything.

        Safe to call twice, concurrently, from any task, and before `start`. Raises what
        went wrong while closing; not what had already failed the service (`wait_closed`).
        """
        if self.state is State.NEW:
            self._move(State.STOPPED)
            self._drop_early()
            return
        assert self._runner is not None, "start() sets it before leaving NEW"
        asked_here = self.state in (State.STARTING, State.RUNNING)
        if asked_here:
            self._move(State.STOPPING)
            self._runner.cancel()
        await asyncio.wait({self._runner})
        if asked_here and not self._runner.cancelled():
            self._runner.result()

    async def wait_closed(self) -> None:
        """Wait for the end; raise what made the service fail."""
        assert self._runner is not None, "start() first"
        await asyncio.wait({self._runner})
        self._runner.result()

    @property
    def fault(self) -> BaseException | None:
        """What made it fail, once it has released everything; else None."""
        runner = self._runner
        if runner is None or not runner.done() or runner.cancelled():
            return None
        return runner.exception()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.state.name}>"

    async def _main(self, ready: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                async with asyncio.TaskGroup() as tasks:
                    self._tasks = tasks
                    for loop in self._loops():
                        what = getattr(loop, "__name__", "loop")
                        tasks.create_task(loop, name=f"{self.name}.{what}")
                    tasks.create_task(_forever(), name=f"{self.name}.until_stopped")
                    self._move(State.RUNNING)
                    while self._early:
                        self._spawn(self._early.pop(0))
                    ready.set_result(None)
        except asyncio.CancelledError:
            if self.state is not State.STOPPING:
                self._move(State.FAILED)
                raise  # cancelled by someone else: not ours to swallow
            self._move(State.STOPPED)
        except BaseException:
            self._move(State.FAILED)
            raise
        finally:
            self._drop_early()

    def _drop_early(self) -> None:
        for work in self._early:
            work.close()
        self._early.clear()

    def _move(self, to: State) -> None:
        if to not in _ALLOWED[self.state]:
            raise LifecycleError(f"{self.name}: cannot go from {self.state.name} to {to.name}")
        logger.debug("%s: %s -> %s", self.name, self.state.name, to.name)
        self.state = to


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
