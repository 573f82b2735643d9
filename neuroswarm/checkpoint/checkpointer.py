"""Writes checkpoints in the background, when the schedule says so.

Outer states never change, so they are written as they are, without a copy and with no work on the
compute thread; of what the node alone knows, one job there takes a copy. No trouble with the
disk reaches the training. Knows nothing of rounds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from neuroswarm.checkpoint.budget import ByteBudget
from neuroswarm.checkpoint.complaint import Complaint
from neuroswarm.checkpoint.schedule import (
    Risk,
    Situation,
    decide,
    find_pressing,
    find_risks,
)
from neuroswarm.checkpoint.snapshot import Snapshot
from neuroswarm.checkpoint.store import CheckpointStore, Recovered, comes_again
from neuroswarm.clock import Clock
from neuroswarm.config.sections import CheckpointConfig
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError, ComputeError
from neuroswarm.hardware.facts import MachineFacts
from neuroswarm.service import Service

logger = logging.getLogger(__name__)

POLL_S = 5.0
"""Seconds between two looks at the machine."""

OUTER_BYTES_PER_PARAM = 8
INNER_BYTES_PER_PARAM = 16
"""Local parameters, two moments and a residual, before the first checkpoint tells."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is saved."""

    snapshot: Callable[[], Awaitable[Snapshot]]
    """Copies what the node alone knows, between two steps."""
    describe: Callable[[], Mapping[str, Any]]
    """What is written with an outer state; JSON values."""
    count_steps: Callable[[], int]
    """Inner steps so far."""
    read_facts: Callable[[], MachineFacts]
    """Reads what the machine tells; may block."""
    on_durable: Callable[[OuterState], Awaitable[None]]
    """Hears that an outer state is on the disk, once it is."""
    count_noted: Callable[[], int]
    """Bytes that the node has written besides since its start: they use the budget too."""
    on_saved: Callable[[int], None]
    """Hears that an inner checkpoint of a round is on the disk, once it is.

    In a worker thread, as it may block; one call after the other."""


class Checkpointer(Service):
    """The speculative checkpointer (REQUIREMENTS N12).

    Threads: belongs to the event loop; disk and machine are read and written in worker threads.
    """

    name = "checkpointer"

    def __init__(
        self,
        store: CheckpointStore,
        subject: Subject,
        cfg: CheckpointConfig,
        *,
        budget: ByteBudget,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.num_inner = 0
        """Inner checkpoints written since the start."""
        self.num_outer = 0
        """Outer states written since the start."""
        self.last_reason = "none"
        """Why the newest inner checkpoint was written."""
        self._store = store
        self._subject = subject
        self._interval_s = cfg.interval_s
        self._budget = budget
        self._clock = clock
        self._wake = asyncio.Event()
        self._complaint = Complaint(logger, "training goes on; will try again")
        self._newest: tuple[OuterState, Mapping[str, Any]] | None = None
        self._durable: bytes | None = None
        self._inner_round: int | None = None
        """Round of the newest inner checkpoint on the disk."""
        self._unannounced: OuterState | None = None
        """On the disk, but a restart comes to it by itself once more."""
        self._is_synced = True
        self._noted = 0
        self._inner_at = clock.monotonic()
        self._inner_bytes: int | None = None
        self._steps_then = 0
        self._risks: frozenset[Risk] = frozenset()
        self._told: frozenset[Risk] = frozenset()
        self._answered: frozenset[Risk] = frozenset()
        self._risk_at = self._peer_at = float("-inf")
        self._num_outer_alone = 0
        self._saved: deque[int] = deque()
        self._telling = threading.Lock()
        self._is_short = False

    def note_outer(self, state: OuterState) -> None:
        """The node stands on this outer state now, whose digest is known already.

        It is written in the background, and not copied.
        """
        self._newest = (state, self._subject.describe())
        self._is_synced = False
        self._wake.set()

    def note_resumed(self, kept: Recovered) -> None:
        """The node stands on what was found on the disk."""
        self.note_outer(kept.outer)
        self._durable = kept.outer.digest
        snapshot = kept.snapshot
        self._inner_round = None if snapshot is None else snapshot.outer.round
        self._is_synced = snapshot is not None and snapshot.outer.digest == self._durable

    def expect(self, risk: Risk) -> None:
        """Somebody knows of a risky moment ahead, such as a peer that says it leaves."""
        self._told |= {risk}
        self._wake.set()

    async def save_last(self) -> None:
        """Write a checkpoint of this moment, whatever budget and pauses say; blocks for the disk.

        A failure is logged.
        """
        error = await self._write_inner("shutdown")
        if error is not None:
            logger.warning("no last checkpoint: %s", error)

    def get_status(self) -> Mapping[str, object]:
        """For `/status` and `/metrics`."""
        now = self._clock.monotonic()
        left = self._budget.left(now) if self._budget.is_limited else None
        return {
            "num_inner": self.num_inner,
            "num_outer": self.num_outer,
            "last_reason": self.last_reason,
            "inner_age_s": round(now - self._inner_at, 1),
            "is_failing": self._complaint.is_open,
            "budget_left_bytes": None if left is None else int(left),
            "is_budget_short": self._is_short,
            "risks": sorted(risk.value for risk in self._risks),
        }

    async def _open(self, stack: AsyncExitStack) -> None:
        self._inner_at = self._clock.monotonic()
        self._steps_then = self._subject.count_steps()

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._work(), self._watch())

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            await self._write_what_is_due()
            await self._wake.wait()

    async def _watch(self) -> None:
        """Look at the machine, and let time-driven decisions be taken."""
        while True:
            await self._clock.sleep(min(POLL_S, self._interval_s))
            self._risks = find_risks(await asyncio.to_thread(self._subject.read_facts))
            self._answered &= self._risks
            self._wake.set()

    async def _write_what_is_due(self) -> None:
        if self._newest is None:
            return
        began = self._clock.monotonic()
        situation = self._look(self._newest[0])
        decision = decide(situation, self._interval_s)
        if decision.is_short and not self._is_short:
            logger.info("checkpoints wait: the day's bytes are used up (checkpoint.daily_write_mb)")
        self._is_short = decision.is_short
        if decision.outer and await self._write_outer(*self._newest) is not None:
            return
        if decision.inner and await self._write_inner(decision.reason) is None:
            pressing = find_pressing(situation)
            if pressing:
                self._risk_at = began
            if Risk.PEER in pressing:
                self._peer_at = began
            self._answered |= situation.new_risks & self._risks
            self._told -= situation.new_risks  # what is told meanwhile stays

    def _look(self, newest: OuterState) -> Situation:
        now = self._clock.monotonic()
        noted_before, self._noted = self._noted, self._subject.count_noted()
        self._budget.spend(self._noted - noted_before, now)
        inner_bytes = self._inner_bytes
        return Situation(
            since_inner_s=now - self._inner_at,
            has_trained=self._subject.count_steps() != self._steps_then,
            has_synced=not self._is_synced,
            is_outer_unwritten=newest.digest != self._durable,
            new_risks=(self._risks - self._answered) | self._told,
            since_risk_s=now - self._risk_at,
            since_peer_s=now - self._peer_at,
            num_outer_alone=self._num_outer_alone,
            budget_left=self._budget.left(now),
            budget_capacity=self._budget.capacity,
            outer_bytes=OUTER_BYTES_PER_PARAM * newest.num_params,
            inner_bytes=(
                INNER_BYTES_PER_PARAM * newest.num_params if inner_bytes is None else inner_bytes
            ),
            is_pausing=self._complaint.is_pausing(now),
        )

    async def _write_outer(
        self, state: OuterState, meta: Mapping[str, Any]
    ) -> CheckpointError | None:
        error = await self._write(self._store.save_outer, state, meta)
        if error is None:
            await self._became_durable(state, meta)
        return error

    async def _write_inner(self, reason: str) -> CheckpointError | None:
        try:
            snapshot = await self._subject.snapshot()
        except (MemoryError, RuntimeError, ComputeError, CheckpointError) as cause:
            # torch has no memory for the copy, or a loop outside gives no moment for it
            error = CheckpointError(f"cannot take a snapshot: {cause}")
            self._complaint.failed(error, self._clock.monotonic())
            return error
        taken_at, steps = self._clock.monotonic(), self._subject.count_steps()
        if self._newest is None or self._newest[0].digest != snapshot.outer.digest:
            self.note_outer(snapshot.outer)
        assert self._newest is not None, "noted now at the latest"
        if snapshot.outer.digest != self._durable:
            error_outer = await self._write_outer(snapshot.outer, self._newest[1])
            if error_outer is not None:
                return error_outer
        error_inner = await self._write(self._store.save, snapshot)
        if error_inner is None:
            self.num_inner += 1
            self._num_outer_alone = 0
            self.last_reason = reason
            self._inner_round = snapshot.outer.round
            self._saved.append(snapshot.outer.round)
            await asyncio.to_thread(self._tell_saved)
            if self._unannounced is not None:
                state, self._unannounced = self._unannounced, None
                await self._subject.on_durable(state)
            self._inner_at, self._steps_then = taken_at, steps
            self._inner_bytes = snapshot.inner_bytes
            self._is_synced = self._newest[0].digest == snapshot.outer.digest
            logger.debug("checkpoint of round %d (%s)", snapshot.outer.round, reason)
        return error_inner

    def _tell_saved(self) -> None:
        """Tell of saved rounds in their order, one after the other; in a worker thread."""
        with self._telling:
            while self._saved:
                self._subject.on_saved(self._saved.popleft())

    async def _write(self, save: Callable[..., object], *what: object) -> CheckpointError | None:
        """Write in a worker thread, and count it; what went wrong, if anything did."""
        before = self._store.bytes_written
        try:
            await asyncio.to_thread(save, *what)
        except CheckpointError as error:
            self._complaint.failed(error, self._clock.monotonic())
            return error
        finally:
            written = self._store.bytes_written - before
            self._budget.spend(written, self._clock.monotonic())
        self._complaint.worked("writing checkpoints")
        return None

    async def _became_durable(self, state: OuterState, meta: Mapping[str, Any]) -> None:
        self._durable = state.digest
        self.num_outer += 1
        self._num_outer_alone += 1
        before = self._inner_round
        if before is not None and comes_again(meta, state.round, before):
            self._unannounced = state
        else:
            self._unannounced = None
            await self._subject.on_durable(state)
