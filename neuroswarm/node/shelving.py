"""Moves what a node rarely needs from its memory to its disk.

Former outer states, own publications with their verdict, payloads of finished rounds. Knows nothing
of files (`checkpoint/shelf.py`) or of when a round ends.
"""

from __future__ import annotations

import asyncio

from neuroswarm.checkpoint.shelf import Shelf
from neuroswarm.hardware.allocator import give_back_memory
from neuroswarm.node.intake import Intake
from neuroswarm.node.replica import Replica

LEAST_PARAMS = 1_000_000
"""Smaller models leave no holes worth while."""


class Shelving:
    """Puts away what it finds, one thing after the other. Belongs to the event loop."""

    def __init__(self, shelf: Shelf, replica: Replica, intake: Intake) -> None:
        """Wire up."""
        self._shelf = shelf
        self._replica = replica
        self._intake = intake
        self._turn = asyncio.Lock()

    async def put_away(self) -> None:
        """Put away what a round has left; what the disk does not take stays in memory."""
        async with self._turn:
            for state in self._replica.former_states:
                if state.is_in_memory:
                    await asyncio.to_thread(self._shelf.put_state, state)
            for publication in self._replica.settled_publications():
                if publication.is_in_memory:
                    deltas = await asyncio.to_thread(self._shelf.put_tensors, publication.deltas)
                    if deltas is not None:
                        publication.put_away(deltas)
            await self._put_payloads_away()
            if self._replica.state.num_params >= LEAST_PARAMS:
                await asyncio.to_thread(give_back_memory)

    async def _put_payloads_away(self) -> None:
        archive = self._intake.archive
        found = archive.in_memory_before(self._replica.state.round)
        if not found:
            return
        stored = await asyncio.to_thread(self._shelf.put_bytes, list(found.values()))
        if stored is not None:
            for contribution, payload in zip(found, stored, strict=True):
                archive.replace_payload(contribution, payload)
