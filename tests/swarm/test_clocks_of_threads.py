"""The clock that tells gaps in a node's life is asked by the event loop alone."""

from __future__ import annotations

import threading
from pathlib import Path

from neuroswarm.clock import SystemClock
from neuroswarm.testing.swarm import Swarm


class Watched(SystemClock):
    """Knows from which threads the time with all gaps is asked for."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def boottime(self) -> float:
        self.threads.add(threading.current_thread().name)
        return super().boottime()


async def test_only_the_event_loop_looks_for_gaps(tmp_path: Path):
    clock = Watched()
    async with Swarm(tmp_path) as swarm:
        await swarm.start("anna", clock=clock)
        await swarm.until_round(2)
        assert clock.threads == {threading.current_thread().name}
