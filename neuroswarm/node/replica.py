"""What this node holds of the model: the outer state, the local parameters, the books.

Everything that changes them goes through here, one change at a time. Knows nothing of rounds
in progress, of peers or of disks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroswarm.checkpoint.snapshot import Inner, Snapshot
from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.registry import Codec, codec_of
from neuroswarm.diloco.ledger import Ledger, Written
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.schedule import get_inner_steps, plan_inner_steps
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import RoundError, SchemaMismatch
from neuroswarm.models.fragments import Fragments
from neuroswarm.node.solo import Solo
from neuroswarm.training.compute import RESTED, ComputeThread, Rested
from neuroswarm.training.threads import run_beside
from neuroswarm.training.trainer import Progress, StepReport, Trainer
from neuroswarm.values import NodeId
from neuroswarm.wire.messages import Contribution, FragmentPayload

Tamper = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""(outer parameters, local parameters) -> what is published as local parameters."""

MAX_COMMIT_WAIT_S = 2.0
"""Longest wait of a snapshot for a commit in progress."""

_LOOK_S = 0.005

SLOW_STEP_S = 0.25
"""Seconds between the ends of two steps above which a copy of the parameters is kept ready: to wait
for the step in progress would make a slow peer late for every round."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A contribution that is coded but not signed yet."""

    deltas: tuple[Tensor, ...]
    payloads: tuple[Payload, ...]
    parts: tuple[FragmentPayload, ...]
    data: bytes
    """Coded bytes of all fragments in order."""
    progress: Progress
    """Steps, tokens and mean loss since the last publication."""

    def header(self, swarm_id: bytes, state: OuterState) -> Contribution:
        """What is signed of it, as a contribution to the round on `state`."""
        return Contribution(
            swarm_id=swarm_id,
            round=state.round,
            base_digest=state.digest,
            architecture=state.architecture,
            codec=state.rules.codec,
            inner_steps=self.progress.steps,
            tokens=self.progress.tokens,
            loss=self.progress.mean_loss,
            fragments=self.parts,
        )


class Replica:
    """The model at this node. Belongs to the event loop; the model itself to the compute thread.

    `draft` and `move` must not overlap: the rounds driver calls them one after the other.
    """

    def __init__(
        self,
        compute: ComputeThread,
        trainer: Trainer,
        me: NodeId,
        *,
        max_retained_states: int,
        solo: Solo,
        tamper: Tamper | None = None,
    ) -> None:
        self.solo = solo
        """Takes the inner steps."""
        self._clock = solo.clock
        self._compute = compute
        self._trainer = trainer
        self._me = me
        self._max_states = max_retained_states
        self._states: tuple[OuterState, ...] = ()
        """Newest first; replaced as a whole, so that any thread may read it at any time."""
        self._tamper = tamper
        self._ledger: Ledger | None = None
        self.publishable_from = 1
        """Inner steps from which on this node may publish."""
        self._step_ended_at = solo.clock.monotonic()
        self._ready: tuple[tuple[Tensor, ...], Progress] | None = None
        """The parameters after the newest step on a slow machine, and its progress."""
        self._published_ahead = Progress()
        """What was published of the progress that the trainer still counts."""

    @property
    def fragments(self) -> Fragments:
        """The architecture's fragments."""
        return self._trainer.fragments

    @property
    def state(self) -> OuterState:
        """The outer state held; only after `adopt`."""
        return self._states[0]

    @property
    def has_state(self) -> bool:
        """Whether there is one yet."""
        return bool(self._states)

    def states(self) -> Iterable[OuterState]:
        """The outer states held, newest first, for peers that download one."""
        return self._states

    def find_state(self, digest: bytes) -> OuterState | None:
        """A retained state by its digest."""
        return next((state for state in self._states if state.digest == digest), None)

    @property
    def former_states(self) -> tuple[OuterState, ...]:
        """The states held besides the one that it stands on, newest first."""
        return self._states[1:]

    def forget(self, state: OuterState) -> None:
        """Hold a former state no more. Not while the replica moves."""
        self._states = tuple(s for s in self._states if s is self.state or s is not state)

    def settled_publications(self) -> list[Publication]:
        """Own publications that are needed only if what became of them changes."""
        return [] if self._ledger is None else self._ledger.settled()

    def base_of(self, header: Contribution) -> OuterState:
        """The retained state that a contribution is based on; the one held if there is none."""
        return self.find_state(header.base_digest) or self.state

    @property
    def codec(self) -> Codec:
        """The swarm's codec."""
        return codec_of(self.state.rules)

    @property
    def payload_bytes(self) -> int:
        """Size of a contribution to the state held."""
        codec = self.codec
        return sum(codec.packed_size(fragment.num_params) for fragment in self.state.fragments)

    async def adopt(self, state: OuterState) -> None:
        """Take a first outer state: the local parameters start from it."""
        await asyncio.to_thread(lambda: state.digest)
        self._begin_with(state)
        self._ledger = Ledger(
            [f.num_params for f in state.fragments],
            self.codec,
            contribution_momentum=state.rules.contribution_momentum,
        )

        def begin() -> None:
            self._trainer.follow(plan_inner_steps(state.rules, state.round))
            self._trainer.load(state.params)

        await self._compute.run(begin)

    async def restore(self, snapshot: Snapshot, *, has_published: bool) -> None:
        """Take everything up where a snapshot was made.

        Args:
            snapshot: As it was found.
            has_published: Whether this node published in rounds after it.
        """
        await asyncio.to_thread(lambda: snapshot.outer.digest)
        self._begin_with(snapshot.outer)
        tensors, listed = snapshot.ledger
        self._ledger = Ledger.from_tensors(
            tensors,
            listed,
            self.codec,
            contribution_momentum=snapshot.outer.rules.contribution_momentum,
        )
        self._ledger.carry(snapshot.outer, snapshot.local, self._me, is_published=has_published)

        def restore_inner() -> None:
            rules, round_ = snapshot.outer.rules, snapshot.outer.round
            self._trainer.follow(plan_inner_steps(rules, round_))
            self._trainer.load(snapshot.local)
            self._trainer.load_inner_state(*snapshot.inner)

        await self._compute.run(restore_inner)

    def _begin_with(self, state: OuterState) -> None:
        self._hold(state)
        self.solo.hold_at = get_inner_steps(state.rules, 1)  # until peers are met

    def _hold(self, state: OuterState) -> None:
        self._states = (state, *self._states)[: self._max_states]

    def step(self) -> StepReport | Rested:
        """Take one inner step, on the compute thread; a moment's rest if a lone node must wait.

        Raises:
            ComputeError: as `Trainer.step`.
        """
        report = self.solo.step()
        if report is RESTED:
            return report
        began, self._step_ended_at = self._step_ended_at, self._clock.monotonic()
        is_slow = self._step_ended_at - began > SLOW_STEP_S and self.solo.hold_at is None
        is_ready = is_slow and self.inner_steps >= self.publishable_from
        self._ready = (self._trainer.local(), self._trainer.progress) if is_ready else None
        return report

    async def draft(self) -> Draft:
        """Copy the local parameters and code the pseudo-gradient.

        The copy is taken between two steps, or is that of the end of the last one if steps are
        slow.

        Raises:
            RoundError: the parameters are such that they cannot be coded (not finite).
        """

        def take() -> tuple[tuple[Tensor, ...], Progress]:
            progress = self._trainer.progress
            self._trainer.mark_published(progress)
            self.solo.begin_commit()
            return self._trainer.local(), progress

        ready, self._ready = self._ready, None
        if ready is None:
            ready = await self._compute.run(take)
        else:
            self._published_ahead = ready[1]
            self._compute.queue(self._note_published_ahead)
        local, progress = ready
        del ready
        return await run_beside(self._code, local, progress)

    def _note_published_ahead(self) -> None:
        published, self._published_ahead = self._published_ahead, Progress()
        self._trainer.mark_published(published)

    @torch.no_grad()
    def _code(self, local: Sequence[Tensor], progress: Progress) -> Draft:
        """Code the pseudo-gradient, which takes the place of the local parameters."""
        try:
            lie = None if self._tamper is None else self._lie(self._tamper, local)
            for outer, own in zip(self.state.params, local, strict=True):
                torch.sub(outer, own, out=own)
            payloads = self._books.code(local)
        except ValueError as error:
            raise RoundError(f"nothing to publish: {error}") from error
        sizes = [payload.num_params for payload in payloads]
        pieces = [self.codec.pack(payload) for payload in lie or payloads]
        parts = tuple(
            FragmentPayload(index, hashlib.sha256(piece).digest(), len(piece))
            for index, piece in enumerate(pieces)
        )
        data = b"".join(pieces)
        if lie is None:  # the books and the archive share these bytes
            payloads = self._read(data, [part.payload_bytes for part in parts], sizes)
        return Draft(tuple(local), payloads, parts, data, progress)

    def _lie(self, tamper: Tamper, local: Sequence[Tensor]) -> tuple[Payload, ...]:
        """What a hostile node publishes; its own books stay true, so that it goes on training."""
        outer = self.state.params
        lies = tamper(outer, local)
        return tuple(self.codec.encode(o - x) for o, x in zip(outer, lies, strict=True))

    def remember(self, contribution: bytes, draft: Draft) -> None:
        """Enter a publication into the books, before it is sent."""
        self._books.remember(
            Publication(contribution, self.state.round, draft.deltas, draft.payloads)
        )

    async def resume(self, contribution: bytes, header: Contribution, data: bytes) -> None:
        """Enter what this node published in the round in progress before it was restarted.

        The inner steps that it was made of come back into the local parameters.

        Raises:
            SchemaMismatch: its payload cannot be decoded.
        """
        payloads = await run_beside(self.unpack, header, data)

        def enter() -> None:
            self._ready = None
            self._trainer.shift(self._books.resume(contribution, self.state, payloads, self._me))
            self._trainer.mark_published(self._trainer.progress)

        await self._compute.run(enter)

    def unpack(self, header: Contribution, data: bytes) -> tuple[Payload, ...]:
        """Read a checked payload; SchemaMismatch if its codes are malformed.

        Threads: a worker thread; takes a pass over the bytes.
        """
        if len(header.fragments) != len(self.state.fragments):
            raise SchemaMismatch("contribution with other fragments than the architecture's")
        sizes = [fragment.num_params for fragment in self.state.fragments]
        lengths = [part.payload_bytes for part in header.fragments]
        return self._read(data, lengths, sizes, codec_of(self.base_of(header).rules))

    def _read(
        self, data: bytes, lengths: Sequence[int], sizes: Sequence[int], codec: Codec | None = None
    ) -> tuple[Payload, ...]:
        """The payloads of fragments whose wire forms follow one another; windows into `data`."""
        codec = codec or self.codec
        payloads, start, view = [], 0, memoryview(data)
        for length, size in zip(lengths, sizes, strict=True):
            payloads.append(codec.unpack(view[start : start + length], size))
            start += length
        return tuple(payloads)

    async def move(self, new: OuterState) -> None:
        """Go to another outer state: a commit, a repair, another lineage (DESIGN 4.6).

        Cancellation: the books and the parameters change together or not at all.
        """
        await asyncio.to_thread(lambda: new.digest)

        def shift() -> None:
            self._ready = None
            self._books.move_each(self.state, new, self._me, self._trainer.shift_fragment)
            self._hold(new)
            self._trainer.follow(plan_inner_steps(new.rules, new.round))
            self._books.use_codec(self.codec, contribution_momentum=new.rules.contribution_momentum)
            self.solo.end_commit()

        await self._compute.run(shift)

    async def snapshot(self) -> Snapshot:
        """Copy everything between two steps.

        While a lone node commits it waits: in between it is at no point of an unbroken run.
        """

        def take() -> tuple[OuterState, tuple[Tensor, ...], Callable[[], Written], Inner] | None:
            if self.solo.is_committing and self._clock.monotonic() < until:
                return None  # a draft came first
            local, inner = self._trainer.local(), self._trainer.inner_state()
            return self.state, local, self._books.freeze(), inner

        until = self._clock.monotonic() + MAX_COMMIT_WAIT_S
        while (found := await self._compute.run(take)) is None:
            await self._clock.sleep(_LOOK_S)
        outer, local, books, inner = found
        return Snapshot(outer, local, await asyncio.to_thread(books), inner)

    async def evaluate_state(self, state: OuterState, num_batches: int) -> float:
        """Held-out loss of an outer state, nats per token."""
        return await self._compute.run(self._trainer.evaluate, state.params, num_batches)

    @property
    def total_steps(self) -> int:
        """Inner steps since the node first started."""
        return self._trainer.total.steps

    @property
    def inner_steps(self) -> int:
        """Inner steps since the last publication."""
        return self._trainer.progress.steps - self._published_ahead.steps

    @property
    def _books(self) -> Ledger:
        assert self._ledger is not None, "adopt or restore comes first"
        return self._ledger
