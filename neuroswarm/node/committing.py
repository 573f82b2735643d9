"""Carries out what a round decided: the outer step, the move, the entry in the history.

Knows nothing of how the decision was reached.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from neuroswarm.diloco.amending import amend
from neuroswarm.diloco.outer import RoundOutcome, advance
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError, PeerError
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.holdings import AgreedSet, Holdings
from neuroswarm.node.inquiry import Download, Verdict
from neuroswarm.node.intake import Intake
from neuroswarm.node.replica import Replica
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.training.threads import run_beside
from neuroswarm.values import NodeId, short
from neuroswarm.wire.messages import Confirm, decode_confirm
from neuroswarm.wire.signed import Kind, Signed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Commit:
    """One move of this node to another outer state."""

    state: OuterState
    """Where it stands now."""
    left: OuterState
    """Where it stood."""
    outcome: RoundOutcome | None
    """What the outer step made of the agreed set; None for a downloaded state."""
    contributions: tuple[bytes, ...]
    """Ids of the agreed contributions, ascending."""
    signers: tuple[NodeId, ...]
    """Their signers, in the same order."""
    is_repair: bool
    """Whether it changed the lineage."""
    tokens: tuple[int, ...] = ()
    """That the contributions were trained on, in the same order."""


class Committer:
    """Moves the replica.

    Cancellation: the replica and the history of its rounds change together or not at all.
    """

    def __init__(
        self, replica: Replica, holdings: Holdings, *, intake: Intake, crowd: Crowd
    ) -> None:
        self._replica = replica
        self._holdings = holdings
        self._intake = intake
        self._crowd = crowd

    async def commit(
        self, contributions: tuple[bytes, ...], voters: Iterable[NodeId]
    ) -> Commit | None:
        """Apply the agreed set of the round in progress; None if it cannot be had whole."""
        state = self._replica.state
        confirms = self._confirms(state, contributions)
        sources = self._crowd.sources(*voters)
        try:
            agreed = await self._holdings.agreed(state, contributions, sources)
        except PeerError as error:
            logger.warning("round %d decided, but not to be had whole: %s", state.round, error)
            return None
        outcome = await run_beside(self._advance, state, agreed)
        await self._enter(state, outcome.state, contributions, confirms)
        return _commit(state, outcome, agreed, is_repair=False)

    async def replay(self, verdict: Verdict) -> Commit | None:
        """Apply a round that others finished, on the state held or on a retained one."""
        left, base, result = self._replica.state, verdict.base, verdict.result
        try:
            self._holdings.learn(result.headers)
            agreed = await self._holdings.agreed(base, result.contributions, [verdict.source])
        except PeerError as error:
            logger.info("round %d of %s not to be had: %s", base.round, verdict.source, error)
            return None
        try:
            outcome = await run_beside(self._advance, base, agreed)
        except CheckpointError as error:  # the base is kept on the disk
            logger.warning("round %d cannot be replayed here: %s", base.round, error)
            self._replica.forget(base)
            return None
        digest = await run_beside(lambda: outcome.state.digest)
        if digest != result.next_digest:
            logger.warning(
                "round %d of %s led to %s there and to %s here: not followed",
                base.round,
                verdict.source.node_id,
                short(result.next_digest),
                short(digest),
            )
            return None
        await self._enter(base, outcome.state, result.contributions, result.confirms)
        return _commit(left, outcome, agreed, is_repair=base is not left)

    async def jump(self, download: Download) -> Commit:
        """Go to a downloaded state."""
        left, state = self._replica.state, download.state
        before = self._intake.history
        assert before is not None, "there is a history once there is a state"
        try:
            await self._replica.move(state)
        finally:
            if self._replica.state is state:  # also if this was cancelled meanwhile
                common = download.last_common_round
                earlier = before.digests_before(0 if common is None else common + 1)
                self._intake.history = History(state.round, state.digest, earlier=earlier)
        return Commit(state, left, None, (), (), download.fork is not None)

    def _advance(self, base: OuterState, agreed: AgreedSet) -> RoundOutcome:
        outcome = advance(base, agreed.contributions)
        state = amend(outcome.state, agreed.amendments, self._crowd.swarm_id, base)
        return replace(outcome, state=state)

    async def _enter(
        self,
        base: OuterState,
        state: OuterState,
        contributions: tuple[bytes, ...],
        confirms: tuple[Signed, ...],
    ) -> None:
        history = self._intake.history
        assert history is not None, "there is a history once there is a state"
        try:
            await self._replica.move(state)
        finally:
            if self._replica.state is state:  # also if this was cancelled meanwhile
                history.rewind(base.round, base.digest)
                history.append(
                    FinishedRound(base.round, base.digest, state.digest, contributions, confirms)
                )

    def _confirms(self, state: OuterState, contributions: tuple[bytes, ...]) -> tuple[Signed, ...]:
        """Who stands for this set; those whose voice counts come first, as there is a bound."""
        said = self._intake.register.find(Kind.CONFIRM, state.round, state.digest)
        found = [s for s in said if _read(s).contributions == contributions]
        return tuple(sorted(found, key=lambda s: not self._crowd.is_counted(s.signer, state)))


def _commit(
    left: OuterState,
    outcome: RoundOutcome,
    agreed: AgreedSet,
    *,
    is_repair: bool,
) -> Commit:
    contributions = tuple(c.id for c in agreed.contributions)
    signers = tuple(c.node_id for c in agreed.contributions)
    tokens = tuple(c.tokens for c in agreed.contributions)
    return Commit(outcome.state, left, outcome, contributions, signers, is_repair, tokens)


def _read(signed: Signed) -> Confirm:
    return decode_confirm(signed.body)
