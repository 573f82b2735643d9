"""Follows what rounds do: counts, evaluates, writes the event log, has checkpoints written.

Nothing of it holds up the next round. Knows nothing of how rounds work, and not when checkpoints
are written (`checkpoint/checkpointer.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroswarm.checkpoint.event_log import EventLog
from neuroswarm.clock import Clock
from neuroswarm.diloco.amending import describe_changes
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError
from neuroswarm.node.committing import Commit
from neuroswarm.node.replica import Replica
from neuroswarm.node.statistics import Statistics, count_foreign
from neuroswarm.rounds.held_out import HeldOutFigures
from neuroswarm.rounds.loss_trend import LossTrend
from neuroswarm.service import Service
from neuroswarm.values import NodeId, short

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Commits whose evaluation may be outstanding; then the oldest go without."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left to do about a commit; holds on to few states, which are large."""

    state: OuterState
    left: OuterState | None
    """The state given up, of a repair."""
    event: dict[str, object]


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where what is recorded goes."""

    keep_left: Callable[[OuterState], Path] | None
    """Writes an outer state that the node gives up; blocks; raises CheckpointError."""
    event_log: EventLog | None
    """One line an event. None: none are written."""
    announce: Callable[[], None]
    """Tells the peers of the new state at once."""
    measure: Callable[[], Mapping[str, object]]
    """Measurements that go into every event."""


class Recorder(Service):
    """The rounds driver's observer."""

    name = "recorder"

    def __init__(
        self,
        replica: Replica,
        statistics: Statistics,
        sinks: Sinks,
        *,
        eval_batches: int,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._replica = replica
        self._statistics = statistics
        self._sinks = sinks
        self._eval_batches = eval_batches
        self._clock = clock
        self.held_out = HeldOutFigures(statistics.me)
        """Figures of the states stood on."""
        self.trend = LossTrend()
        """Of the swarm's held-out loss."""
        self.note_state: Callable[[OuterState], None] = _ignore
        """Hears of every outer state that the node stands on; has it written."""
        self.put_away: Callable[[], Awaitable[None]] = _keep
        """Moves what a finished round has left from the memory to the disk."""
        self.note_loss: Callable[[float | None], None] = _ignore
        """Hears the held-out loss of every outer state that is evaluated; None: there is none."""
        self._waiting: asyncio.Queue[_Work] = asyncio.Queue()
        self.progressed = asyncio.Event()
        """Set after every commit and every evaluation; whoever waits for it clears it."""

    def on_published(self, round_: int, contribution: bytes) -> None:
        """Note a publication of this node."""
        self._statistics.contributions_published += 1
        self._spawn(
            self._append(
                {
                    "event": "published",
                    "time": self._clock.wall(),
                    "round": round_,
                    "contribution": contribution.hex(),
                }
            )
        )

    async def on_commit(self, commit: Commit) -> None:
        """Note a move to another outer state."""
        applied_at = self._clock.wall()
        self._sinks.announce()
        self.note_state(commit.state)
        self._note_swarm_loss()  # of the round before more figures are here now
        self.held_out.stand_on(commit.state)
        event = {**self._describe(commit, applied_at), **self._sinks.measure()}
        work = _Work(commit.state, commit.left if commit.is_repair else None, event)
        self._statistics.note(commit)
        _log_commit(commit, self._statistics)
        _log_rules(commit, self._statistics.me)
        while self._waiting.qsize() >= MAX_WAITING:
            self._waiting.get_nowait()
            self._waiting.task_done()
        self._waiting.put_nowait(work)
        self.progressed.set()

    async def on_durable(self, state: OuterState) -> None:
        """Note that an outer state is on the disk: a restart reaches it at least."""
        self._statistics.durable_round = state.round
        await self._append(
            {
                "event": "durable",
                "time": self._clock.wall(),
                "round": state.round,
                "digest": state.digest.hex(),
            }
        )

    async def drained(self) -> None:
        """Wait until every commit so far is evaluated and in the event log."""
        await self._waiting.join()

    async def _open(self, stack: AsyncExitStack) -> None:
        pass

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._work(),)

    async def _work(self) -> None:
        await self.put_away()  # what a restart has brought
        while True:
            work = await self._waiting.get()
            await self.put_away()
            await self._finish(work)
            del work  # its states are large
            self._waiting.task_done()
            self.progressed.set()

    async def _finish(self, work: _Work) -> None:
        loss = await self._evaluate(work.state)
        known = loss if math.isfinite(loss) else None
        self._statistics.held_out_loss = known
        self.held_out.note_own(work.state, loss)
        self.note_loss(known)
        swarm = self._note_swarm_loss()
        await self._append({**work.event, "held_out_loss": known, "swarm_held_out": swarm})
        if work.left is not None:
            await self._keep_left(work.left)

    def _note_swarm_loss(self) -> Mapping[str, float] | None:
        found = self.held_out.newest()
        if found is None:
            return None
        self.trend.note(found.round, found.loss)
        return found.as_dict()

    async def _evaluate(self, state: OuterState) -> float:
        """Held-out loss; NaN where what measures it, which may be the user's, raises anything."""
        measuring = self._replica.evaluate_state(state, self._eval_batches)
        (found,) = await asyncio.gather(measuring, return_exceptions=True)
        if isinstance(found, Exception):
            logger.error(
                "round %d: the held-out loss was not measured", state.round, exc_info=found
            )
            return math.nan
        if isinstance(found, BaseException):
            raise found
        return found

    def _describe(self, commit: Commit, applied_at: float) -> dict[str, object]:
        return {
            "event": "commit",
            "time": applied_at,
            "round": commit.state.round,
            "digest": commit.state.digest.hex(),
            "left_round": commit.left.round,
            "left_digest": commit.left.digest.hex(),
            "is_repair": commit.is_repair,
            "is_download": commit.outcome is None,
            "contributions": [c.hex() for c in commit.contributions],
            "signers": [signer.hex() for signer in commit.signers],
            "used_tokens": _used_tokens(commit),
            "foreign_used": count_foreign(commit, self._statistics.me),
            "method": "none" if commit.outcome is None else commit.outcome.method,
            "rules_revision": commit.state.rules.revision,
        }

    async def _append(self, event: Mapping[str, object]) -> None:
        if self._sinks.event_log is not None:
            await asyncio.to_thread(self._sinks.event_log.append, event)

    async def _keep_left(self, state: OuterState) -> None:
        if self._sinks.keep_left is None:
            return
        try:
            path = await asyncio.to_thread(self._sinks.keep_left, state)
        except CheckpointError as error:
            logger.warning("state left behind in round %d is lost: %s", state.round, error)
        else:
            logger.warning("state left behind in round %d kept in %s", state.round, path)


def _used_tokens(commit: Commit) -> list[int]:
    """Tokens of each contribution that the outer step used."""
    used = set() if commit.outcome is None else set(commit.outcome.used)
    pairs = zip(commit.contributions, commit.tokens, strict=True)
    return [tokens for contribution, tokens in pairs if contribution in used]


def _ignore(_what: object) -> None:
    pass


async def _keep() -> None:
    pass


def _log_rules(commit: Commit, me: NodeId) -> None:
    """Show every change of the rules."""
    before, after = commit.left.rules, commit.state.rules
    if before == after:
        return
    changes = ", ".join(describe_changes(before, after))
    logger.warning("rules changed from round %d on: %s", commit.state.round, changes)
    if me in after.expelled_ids - before.expelled_ids:
        logger.error("the owner of this swarm has expelled this node: nobody listens to it now")


def _log_commit(commit: Commit, statistics: Statistics) -> None:
    if commit.outcome is None:
        logger.info(
            "moved to downloaded state %s of round %d",
            short(commit.state.digest),
            commit.state.round,
        )
        return
    logger.info(
        "round %d committed: %d contributions, %d used, %s, state %s%s",
        commit.state.round - 1,
        len(commit.contributions),
        statistics.last_set_size,
        commit.outcome.method,
        short(commit.state.digest),
        " (repair)" if commit.is_repair else "",
    )
