"""Gives out the states that this node holds, piece by piece: to few at once, at a bounded rate.

A state that somebody downloads is held on to, so that a joiner on a slow link can finish although
rounds go on. Knows nothing of why a state is wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from neuroswarm.checkpoint.state_manifest import encode_manifest
from neuroswarm.clock import Clock
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.pieces import Layout, cut
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import SchemaMismatch
from neuroswarm.service import Service
from neuroswarm.transport import Rpc
from neuroswarm.v1 import state_pb2
from neuroswarm.values import NodeId, short
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

logger = logging.getLogger(__name__)

PIN_S = 60.0
"""Seconds after the last request for a state for which it is held on to."""

MAX_PINNED = 2
"""States held on to that the node itself has let go of."""

SLOT_S = 5.0
"""Seconds after its last piece for which a downloader keeps its place."""

MAX_PIECES_AT_ONCE = 4
"""Pieces on their way to one downloader."""


@dataclass(slots=True)
class _Pin:
    state: OuterState
    asked_at: float


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
    ) -> None:
        """Register the handlers; the transport must not have started.

        Args:
            rpc: The node's transport.
            states: The states held now, newest first.
            cfg: How many downloaders and how many bytes.
            clock: Measures idleness and the rate.
        """
        super().__init__()
        self._states = states
        self._clock = clock
        self._pins: OrderedDict[bytes, _Pin] = OrderedDict()
        self._places = Places(cfg.max_state_downloads)
        mbit = cfg.max_state_upload_mbit
        self._pace = None if mbit is None else Pace(mbit * 1e6 / 8)
        self.bytes_given = 0
        """Of pieces, since the start."""
        rpc.serve_unary("State/Manifest", self._on_manifest)
        rpc.serve_stream("State/Piece", self._on_piece)

    @property
    def num_pinned(self) -> int:
        """States held on to that the node itself has let go of."""
        held = {state.digest for state in self._states()}
        return sum(digest not in held for digest in self._pins)

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
        with self._places.taken(caller, self._clock) as has_place:
            if not has_place:
                yield _refuse(state_pb2.REFUSAL_BUSY)
                return
            self._pin(state)
            messages = await asyncio.to_thread(_cut, state, request.piece, request.offset)
            for message in messages:
                if self._pace is not None:
                    now = self._clock.monotonic()
                    await self._clock.sleep(self._pace.take(len(message), now))
                self.bytes_given += len(message)
                yield message

    def _find(self, digest: bytes) -> OuterState | None:
        self._unpin()
        held = next((state for state in self._states() if state.digest == digest), None)
        if held is None and digest in self._pins:
            return self._pins[digest].state
        return held

    def _pin(self, state: OuterState) -> None:
        if state.digest not in self._pins:
            logger.info(
                "state %s of round %d is being downloaded", short(state.digest), state.round
            )
        self._pins[state.digest] = _Pin(state, self._clock.monotonic())
        self._pins.move_to_end(state.digest)
        self._unpin()

    def _unpin(self) -> None:
        """Let go of what nobody asks for, and of the oldest beyond the bound."""
        now = self._clock.monotonic()
        for digest in [d for d, pin in self._pins.items() if now - pin.asked_at >= PIN_S]:
            del self._pins[digest]
        held = {state.digest for state in self._states()}
        beyond = [digest for digest in self._pins if digest not in held]
        for digest in beyond[: max(0, len(beyond) - MAX_PINNED)]:
            del self._pins[digest]


class Places:
    """Who may download at once."""

    def __init__(self, max_places: int) -> None:
        """Allow that many."""
        self._max_places = max_places
        self._under_way: Counter[NodeId] = Counter()
        self._seen_at: dict[NodeId, float] = {}

    def count(self, now: float) -> int:
        """Places taken at monotonic time `now`."""
        self._seen_at = {
            node_id: at
            for node_id, at in self._seen_at.items()
            if self._under_way[node_id] or now - at < SLOT_S
        }
        return len(self._seen_at)

    @contextmanager
    def taken(self, caller: NodeId, clock: Clock) -> Iterator[bool]:
        """Hold a place for the time of a piece; gives whether there is one."""
        count = self.count(clock.monotonic())
        is_new = caller not in self._seen_at
        if (is_new and count >= self._max_places) or self._under_way[caller] >= MAX_PIECES_AT_ONCE:
            yield False
            return
        self._under_way[caller] += 1
        self._seen_at[caller] = clock.monotonic()
        try:
            yield True
        finally:
            self._under_way[caller] -= 1
            self._seen_at[caller] = clock.monotonic()
            if not self._under_way[caller]:
                del self._under_way[caller]


class Pace:
    """Spreads bytes over time, first come, first served."""

    def __init__(self, bytes_per_s: float) -> None:
        """Let that many pass."""
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")

    def take(self, num_bytes: int, now: float) -> float:
        """Seconds after `now` at which so many bytes may go."""
        begins = max(now, self._free_at)
        self._free_at = begins + num_bytes / self._bytes_per_s
        return begins - now


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
        state_pb2.PieceChunk(
            data=b"".join(cut(fragment.params, fragment.momentum, start, end))
        ).SerializeToString()
        for start, end in zip(starts, ends, strict=True)
    ]
