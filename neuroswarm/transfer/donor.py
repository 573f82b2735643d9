"""Gives out the states that this node holds, piece by piece: to few at once, at a bounded rate.

A state that somebody downloads is held on to, so that a joiner on a slow link can finish although
rounds go on. Knows nothing of why a state is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol

from neuroswarm.clock import Clock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.pieces import Layout
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointError, SchemaMismatch
from neuroswarm.service import Service
from neuroswarm.transfer.state_manifest import encode_manifest
from neuroswarm.transfer.upload_bounds import PIN_S, Pace, Pins, Places
from neuroswarm.transport import Rpc
from neuroswarm.v1 import state_pb2
from neuroswarm.values import NodeId, short
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

logger = logging.getLogger(__name__)


class Uplink(Protocol):
    """What the node's link bears beside everything else that it sends."""

    def may_give(self, num_bytes: int) -> bool:
        """Whether so many bytes more may be given away."""
        ...

    async def take(self, num_bytes: int) -> float:
        """Wait until a message of so many bytes may go; returns for how many seconds."""
        ...


class StateDonor(Service):
    """Serves the outer states that this node holds."""

    name = "donor"

    def __init__(
        self,
        rpc: Rpc,
        states: Callable[[], Iterable[OuterState]],
        cfg: RoundConfig,
        *,
        clock: Clock,
        uplink: Uplink | None = None,
    ) -> None:
        """Register the handlers; the transport must not have started.

        Args:
            rpc: The node's transport.
            states: The states held now, newest first.
            cfg: How many downloaders and how many bytes.
            clock: Measures idleness and the rate.
            uplink: Bounds what is given beside `cfg`; None: nothing does.
        """
        super().__init__()
        self._states = states
        self._clock = clock
        self._uplink = uplink
        self._pins = Pins()
        self._places = Places(cfg.max_state_downloads)
        mbit = cfg.max_state_upload_mbit
        self._pace = None if mbit is None else Pace(mbit * 1e6 / 8, clock)
        self.bytes_given = 0
        """Of pieces, since the start."""
        rpc.serve_unary("State/Manifest", self._on_manifest)
        rpc.serve_stream("State/Piece", self._on_piece)

    @property
    def num_pinned(self) -> int:
        """States held on to that the node itself has let go of."""
        held = {state.digest for state in self._states()}
        return sum(digest not in held for digest in self._pins.digests())

    @property
    def num_downloaders(self) -> int:
        """Peers that have a place now."""
        return self._places.count(self._clock.monotonic())

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._pins.clear)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._let_go(),)

    async def _let_go(self) -> None:
        while True:
            await self._clock.sleep(PIN_S / 4)
            self._unpin()

    async def _on_manifest(self, _caller: NodeId, data: bytes) -> bytes:
        wanted = parse(state_pb2.ManifestRequest, data).digest
        state = self._find(wanted) if wanted else next(iter(self._states()), None)
        if state is None:
            return state_pb2.StateManifest(is_known=False).SerializeToString()
        return await asyncio.to_thread(encode_manifest, state)

    async def _on_piece(self, caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = parse(state_pb2.PieceRequest, data)
        state = self._find(request.digest)
        if state is None:
            yield _refuse(state_pb2.REFUSAL_GONE)
            return
        with self._places.taken(caller, self._clock) as place:
            if place is None:
                yield _refuse(state_pb2.REFUSAL_BUSY)
                return
            self._pin(caller, state)
            try:
                messages = await asyncio.to_thread(_cut, state, request.piece, request.offset)
            except CheckpointError as error:
                logger.warning("state %s cannot be given: %s", short(state.digest), error)
                yield _refuse(state_pb2.REFUSAL_GONE)
                return
            for message in messages:
                if not self._may_give(message):
                    yield _refuse(state_pb2.REFUSAL_BUSY)
                    return
                place.was_held_up(await self._wait_for_turn(message), self._clock.monotonic())
                if place.is_lost:
                    yield _refuse(state_pb2.REFUSAL_BUSY)
                    return
                self.bytes_given += len(message)
                yield message
                place.took(len(message), self._clock.monotonic())

    def _may_give(self, message: bytes) -> bool:
        return self._uplink is None or self._uplink.may_give(len(message))

    async def _wait_for_turn(self, message: bytes) -> float:
        waited_s = 0.0
        if self._pace is not None:
            waited_s += await self._pace.take(len(message))
        if self._uplink is not None:
            waited_s += await self._uplink.take(len(message))
        return waited_s

    def _find(self, digest: bytes) -> OuterState | None:
        self._unpin()
        held = next((state for state in self._states() if state.digest == digest), None)
        return self._pins.find(digest) if held is None else held

    def _pin(self, caller: NodeId, state: OuterState) -> None:
        if self._pins.find(state.digest) is None:
            logger.info(
                "state %s of round %d is being downloaded", short(state.digest), state.round
            )
        self._pins.put(caller, state, self._clock.monotonic())
        self._unpin()

    def _unpin(self) -> None:
        self._pins.let_go({state.digest for state in self._states()}, self._clock.monotonic())


def _refuse(why: state_pb2.Refusal) -> bytes:
    return state_pb2.PieceChunk(refusal=why).SerializeToString()


def _cut(state: OuterState, piece: int, offset: int) -> list[bytes]:
    """The messages that bring a piece from an offset on; copies it."""
    layout = Layout(tuple((f.name, f.num_params) for f in state.fragments))
    try:
        span = layout.locate(piece)
    except IndexError as error:
        raise SchemaMismatch(str(error)) from error
    fragment = state.fragments[span.fragment]
    starts = range(span.start + offset, span.end, limits.MAX_PIECE_CHUNK_BYTES)
    ends = (min(start + limits.MAX_PIECE_CHUNK_BYTES, span.end) for start in starts)
    return [
        state_pb2.PieceChunk(data=b"".join(fragment.read(start, end))).SerializeToString()
        for start, end in zip(starts, ends, strict=True)
    ]
