"""The life of rounds at this node: polls the round's machine and does what it asks.

Decides nothing about agreement (`neuroswarm.rounds.agreement`) and knows no tensors
(`neuroswarm.node.replica`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.schedule import get_inner_steps
from neuroswarm.errors import RoundError
from neuroswarm.node.committing import Commit
from neuroswarm.node.holdings import Holding
from neuroswarm.node.inquiry import Download, Offer, Verdict
from neuroswarm.node.round_parts import Observer, RoundParts
from neuroswarm.node.wayfinding import Wayfinder
from neuroswarm.rounds import statements
from neuroswarm.rounds.agreement import Round
from neuroswarm.rounds.deference import Deference
from neuroswarm.rounds.electorate import Electorate
from neuroswarm.rounds.history import History
from neuroswarm.rounds.phases import Action, Instant, Phase
from neuroswarm.rounds.repetition import Repetition
from neuroswarm.service import Service
from neuroswarm.values import NodeId, counted
from neuroswarm.wire import limits
from neuroswarm.wire.signed import Kind, Signed

logger = logging.getLogger(__name__)

TICK_S = 0.1
"""How often progress and the peers' standing are looked at when nothing else happens."""

INLINE_WAIT_S = 0.1
"""Time for a small payload, which its author pushes, before it is pulled."""

RETRY_S = 0.5
"""Pause before a decided set that could not be had is tried again."""


class RoundDriver(Service):
    """Runs one round after the other, from the first outer state on, until stopped."""

    name = "rounds"

    def __init__(
        self,
        parts: RoundParts,
        *,
        is_voting: Callable[[], bool],
        observer: Observer,
        cfg: RoundConfig,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._parts = parts
        self._is_voting = is_voting
        self._observer = observer
        self._cfg = cfg
        self._clock = clock
        self._changed = asyncio.Event()
        self._wayfinder = Wayfinder(
            parts, patience_s=cfg.patience_s, clock=clock, spawn=self._spawn, wake=self.wake
        )
        self._silent: frozenset[NodeId] = frozenset()
        self._deference = Deference()
        self._is_deferring = False
        self._repetition = Repetition()
        self._round: Round | None = None
        self._wanted: dict[bytes, NodeId] = {}
        """Who has the payloads that are to be pulled once they are revealed."""
        self._electorate = Electorate(frozenset())
        self._met: frozenset[NodeId] = frozenset()

    @property
    def phase(self) -> Phase | None:
        """How far the round in progress is; None before the first."""
        return None if self._round is None else self._round.phase

    @property
    def electorate(self) -> Electorate:
        """Who counts in the round in progress."""
        return self._electorate

    @property
    def is_deferring(self) -> bool:
        """Whether this node publishes nothing now, because most peers are elsewhere."""
        return self._is_deferring

    def wake(self) -> None:
        """Something was heard or held: poll soon."""
        self._changed.set()

    def want(self, contribution: bytes, holder: NodeId) -> None:
        """Pull a contribution's payload in the background and hold it in the round.

        Before payloads are revealed there is nothing to pull, unless it came already.
        """
        if self._round is None:
            return
        entry = self._parts.intake.archive.get(contribution)
        if self._round.is_revealed or (entry is not None and entry.payload is not None):
            self._spawn(self._fetch(self._round, contribution, holder))
        else:
            self._wanted[contribution] = holder

    async def _open(self, stack: AsyncExitStack) -> None:
        state = self._parts.replica.state
        if self._parts.intake.history is None:
            self._parts.intake.history = History(state.round, state.digest)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._run(),)

    async def _run(self) -> None:
        while True:
            await self._live_through(await self._begin())

    async def _live_through(self, current: Round) -> None:
        """One round from its beginning to its end; nothing of its states is held on to after."""
        offer = await self._take_part(current)
        commit = await self._conclude(current, offer)
        if commit is not None:
            self._wayfinder.moved()
            if offer is not None:
                self._deference.found_the_way()
            self._note_silence(current)
            await self._observer.on_commit(commit)

    async def _begin(self) -> Round:
        parts, state = self._parts, self._parts.replica.state
        assert parts.intake.history is not None, "_open sets it"
        said = await parts.voice.begin(state.round, state.digest)
        self._wanted = {}
        self._round = current = Round(
            parts.crowd.me,
            started_at=self._clock.monotonic(),
            cfg=self._cfg,
        )
        parts.holdings.forget_before(state.round)
        parts.intake.archive.reveal()  # of the rounds before; what is resumed is withheld again
        self._repetition = Repetition()
        if said:
            self._repetition.said_something(self._clock.monotonic())
        parts.resuming.begin(said)
        if parts.resuming.is_due:
            await parts.resuming.take_up(current, self._clock.monotonic())
        for signed in await parts.holdings.recall(state):
            if current.heard_contribution(signed.signer, signed.id):
                self._spawn(self._fetch(current, signed.id, signed.signer))
        parts.intake.begin(current, state, parts.intake.history)
        parts.voice.pass_on(parts.intake.pending_amendments(), ())
        self._changed.set()
        return current

    async def _take_part(self, current: Round) -> Offer | None:
        """Drive the round until it is decided (None) or there is somewhere else to go."""
        while True:
            self._changed.clear()
            self._look_around()
            if (offer := self._wayfinder.take_offer()) is not None:
                return offer
            if self._parts.resuming.is_due:
                await self._parts.resuming.take_up(current, self._clock.monotonic())
            action = current.poll(self._instant())
            if action is Action.DECIDE:
                return None
            if action is not None:
                await self._act(current, action)
                self._repetition.said_something(self._clock.monotonic())
            else:
                await self._wait(current.deadline)

    def _instant(self) -> Instant:
        parts, state = self._parts, self._parts.replica.state
        history = parts.intake.history
        assert history is not None, "_open sets it"
        wanted_before = get_inner_steps(state.rules, len(self._electorate.live))
        is_voting = self._is_voting()
        self._electorate = parts.crowd.electorate(
            history,
            state,
            with_me=is_voting,
            silent=self._silent,
            steps_wanted=wanted_before,
        )
        steps_wanted = get_inner_steps(state.rules, len(self._electorate.live))
        parts.replica.publishable_from = math.ceil(steps_wanted / 2)
        self._is_deferring = is_voting and self._should_defer(history)
        if is_voting:
            is_alone = self._electorate.live <= {parts.crowd.me} and not self._is_deferring
            parts.replica.solo.hold_at = steps_wanted if is_alone else None
        return Instant(
            now=self._clock.monotonic(),
            electorate=self._electorate,
            is_voter=is_voting,
            inner_steps=parts.thrift.steps_towards(parts.replica.inner_steps),
            steps_wanted=steps_wanted,
            slowest_rtt_s=parts.crowd.slowest_rtt_s(self._electorate.live),
            payload_s=parts.holdings.payload_s,
            is_deferring=self._is_deferring,
            giving_s=self._giving_s(),
        )

    def _giving_s(self) -> float:
        me, current = self._parts.crowd.me, self._round
        own = None if current is None else current.publishers.get(me)
        entry = None if own is None else self._parts.intake.archive.get(own)
        return self._parts.thrift.giving_s(entry, self._electorate.live - {me})

    def _should_defer(self, history: History) -> bool:
        with_me, elsewhere = self._parts.crowd.count_sides(history, self._cfg.patience_s)
        now = self._clock.monotonic()
        is_due = self._deference.is_due(now, num_with_me=1 + with_me, num_elsewhere=elsewhere)
        if is_due and not self._is_deferring:
            logger.info(
                "ahead or apart: %s, here: %s; publishing nothing until this node is with them",
                counted(elsewhere, "peer"),
                counted(1 + with_me, "node"),
            )
        return is_due

    async def _wait(self, deadline: float | None) -> None:
        now = self._clock.monotonic()
        pause_s = TICK_S if deadline is None else min(TICK_S, max(0.0, deadline - now))
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- acting ----------------------------------------------------------------------

    async def _act(self, current: Round, action: Action) -> None:
        parts = self._parts
        match action:
            case Action.SAY_READY:
                parts.voice.say_ready(parts.replica.inner_steps)
            case Action.PUBLISH:
                await self._publish_or_skip(current)
            case Action.SEND_SEAL:
                parts.voice.say_seal()
            case Action.REVEAL:
                self._reveal(current)
            case Action.SEND_BALLOT:
                named = parts.intake.archive.amendments_among(current.ballot)
                await parts.holdings.note(parts.replica.state, current.ballot)
                self._note_own(await parts.voice.say_ballot(current.ballot, named))
            case Action.SEND_CONFIRM:
                named = parts.intake.archive.amendments_among(current.candidate)
                self._note_own(await parts.voice.say_confirm(current.candidate, named))
            case Action.DECIDE:
                raise AssertionError("_take_part returns on DECIDE")

    async def _publish_or_skip(self, current: Round) -> None:
        parts, state = self._parts, self._parts.replica.state
        too_few = parts.replica.inner_steps < parts.replica.publishable_from
        if too_few or parts.voice.is_lost(Kind.CONTRIBUTION) or self._is_too_dear():
            return self._skip(current)
        try:
            draft = await parts.replica.draft()
        except RoundError as error:
            logger.warning("round %d skipped: %s", state.round, error)
            return self._skip(current)
        header = draft.header(parts.crowd.swarm_id, state)
        if not parts.resuming.is_the_same(header):
            return await parts.resuming.take_up(current, self._clock.monotonic())
        signed = await parts.voice.sign_contribution(header, draft.data)
        if signed is None:
            return self._skip(current)
        self._note_own(signed)
        parts.replica.remember(signed.id, draft)
        await parts.holdings.keep_own(signed, header, draft.data)
        current.published(signed.id, self._clock.monotonic())
        parts.voice.spread_contribution(signed)
        self._observer.on_published(state.round, signed.id)
        return await parts.resuming.take_up(current, self._clock.monotonic())

    def _is_too_dear(self) -> bool:
        parts, num_peers = self._parts, len(self._parts.crowd.targets())
        replica = parts.replica
        return parts.thrift.must_skip(replica.payload_bytes, num_peers, replica.inner_steps)

    def _reveal(self, current: Round) -> None:
        """Give out this node's payload, and pull those of the others."""
        self._parts.intake.archive.reveal()
        self._parts.voice.reveal()
        wanted, self._wanted = self._wanted, {}
        for contribution, holder in wanted.items():
            self._spawn(self._fetch(current, contribution, holder))

    def _skip(self, current: Round) -> None:
        self._parts.voice.say_skip(self._parts.replica.inner_steps)
        current.skipped(self._clock.monotonic())

    def _note_own(self, signed: Signed | None) -> None:
        if signed is not None:
            self._parts.intake.register.note(signed, statements.decode(signed))

    async def _fetch(self, current: Round, contribution: bytes, holder: NodeId) -> None:
        entry = self._parts.intake.archive.get(contribution)
        if entry is None:
            return
        if entry.payload is None and entry.header.payload_bytes <= limits.MAX_INLINE_BYTES:
            await self._clock.sleep(INLINE_WAIT_S)  # it is most likely on its way
        holding = await self._parts.holdings.hold(
            contribution,
            holder,
            is_wanted=lambda: self._round is current and current.wants(contribution),
        )
        if holding is Holding.HELD:
            current.held(entry.signed.signer, contribution)
        elif holding is Holding.MALFORMED:
            current.refused(entry.signed.signer)
        self.wake()

    # -- ending ----------------------------------------------------------------------

    async def _conclude(self, current: Round, offer: Offer | None) -> Commit | None:
        parts = self._parts
        match offer:
            case Download():
                return await parts.committer.jump(offer)
            case Verdict():
                commit = await parts.committer.replay(offer)
                if commit is not None:  # the next round may be had from there at once
                    self._wayfinder.may_ask_again(offer.source.node_id)
                return commit
            case None:
                voters = current.confirmers(current.decided)
                commit = await parts.committer.commit(current.decided, voters)
                if commit is None:
                    await self._wait_for_offer()
                return commit

    async def _wait_for_offer(self) -> None:
        """Nobody gives the decided set: somebody may soon, or be ahead already."""
        until = self._clock.monotonic() + RETRY_S
        while self._wayfinder.offer is None and self._clock.monotonic() < until:
            self._changed.clear()
            self._look_around()
            await self._wait(until)

    def _note_silence(self, current: Round) -> None:
        if current.phase is Phase.DECIDED:
            self._silent = self._electorate.live - current.ballot_signers - {self._parts.crowd.me}

    # -- others ahead or apart -------------------------------------------------------

    def _look_around(self) -> None:
        """Greet newcomers, repeat what was lost, look for the way to peers that are elsewhere."""
        parts = self._parts
        met = frozenset(peer.node_id for peer in parts.crowd.live())
        if not met <= self._met:
            parts.voice.repeat(with_payload=True)
            parts.voice.pass_on(parts.intake.pending_amendments(), parts.intake.convictions)
        elif self._repetition.is_due(self._clock.monotonic()):
            parts.voice.repeat(with_payload=False)
        self._met = met
        assert parts.intake.history is not None, "_open sets it"
        self._wayfinder.look_around(parts.intake.history, self._electorate.publish_quorum)
