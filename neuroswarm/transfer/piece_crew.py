"""Fetches the missing pieces of one state, several at once, until all are there.

Who brings what is decided by `piece_plan` and `donor_pool`. Knows nothing of other states.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.errors import (
    MessageTooLarge,
    PeerError,
    PeerUnreachable,
    ProtocolViolation,
    WrongPayload,
)
from neuroswarm.service import Service
from neuroswarm.transfer.donor_pool import NUM_DONORS, PIECES_PER_DONOR, Donor, DonorPool
from neuroswarm.transfer.incoming import IncomingState
from neuroswarm.transfer.piece_plan import Piece, PiecePlan
from neuroswarm.transport import Rpc
from neuroswarm.v1 import state_pb2
from neuroswarm.values import NodeId, short
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse

logger = logging.getLogger(__name__)

STALL_S = 5.0
STALL_BYTES = 4096
"""A donor that brings fewer bytes of a piece in so many seconds is left for another one."""

GIVE_UP_S = 60.0
GIVE_UP_BYTES = 32 * 1024
"""A download to which all donors together bring fewer bytes in so many seconds is given up."""

PIECE_TIMEOUT_S = 600.0
LOOK_S = 0.1
"""How often somebody without work looks for some."""

SAY_S = 5.0
SAY_SHARE = 0.1
"""Progress is logged after so many seconds, or so much of the state."""

RATE_WINDOW_S = 5.0

Blame = Callable[[NodeId, PeerError], None]


class PieceCrew(Service):
    """One download; a service so that its workers end with it."""

    name = "download"

    def __init__(
        self,
        rpc: Rpc,
        incoming: IncomingState,
        plan: PiecePlan,
        pool: DonorPool,
        *,
        blame: Blame,
        clock: Clock,
    ) -> None:
        super().__init__()
        self._rpc = rpc
        self._incoming = incoming
        self._plan = plan
        self._pool = pool
        self._blame = blame
        self._clock = clock
        self._over = asyncio.Event()
        self._failure: PeerError | None = None
        self._num_bytes = incoming.manifest.layout.num_bytes
        self._num_pieces = incoming.manifest.layout.num_pieces
        self._bytes_before = plan.bytes_done
        self._came: deque[tuple[float, int]] = deque()
        self._progressed_at = self._began_at = clock.monotonic()
        self._bytes_since = 0
        self.is_outdone: Callable[[], bool] = _never
        """Whether it is not worth while any more; asked again and again."""
        self._givers = set[NodeId]()
        self.bytes_fetched = 0
        """Of pieces, wrong and unfinished ones included."""
        if plan.is_complete:
            self._over.set()

    async def wait_complete(self) -> None:
        """Wait until every piece is there; PeerUnreachable if nobody gives them."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        self._say("complete")

    def progress(self) -> Mapping[str, object]:
        """How far it is, as JSON values."""
        manifest, done = self._incoming.manifest, self._bytes_there
        return {
            "digest": manifest.digest.hex(),
            "round": manifest.round,
            "percent": round(100.0 * done / self._num_bytes, 1) if self._num_bytes else 100.0,
            "megabytes": round(done / 1e6, 1),
            "megabytes_in_all": round(self._num_bytes / 1e6, 1),
            "megabytes_fetched": round(self.bytes_fetched / 1e6, 3),
            "megabytes_resumed": round(self._bytes_before / 1e6, 1),
            "mbit_per_s": round(self._mbit_per_s(), 2),
            "donors": [donor.node_id.hex() for donor in self._pool.chosen],
        }

    @property
    def givers(self) -> frozenset[NodeId]:
        """Donors of which a whole piece came alone, and right: they hold the state."""
        return frozenset(self._givers)

    @property
    def _bytes_there(self) -> int:
        return self._plan.bytes_done

    # -- life ------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        self._say("begins" if not self._bytes_before else "goes on where it was")
        stack.callback(self._over.set)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        workers = (self._fetch_pieces() for _ in range(NUM_DONORS * PIECES_PER_DONOR))
        return (*workers, self._watch())

    async def _watch(self) -> None:
        """Say how far it is; give up when nobody gives anything."""
        said_at, said_bytes = self._clock.monotonic(), self._bytes_there
        while not self._over.is_set():
            await self._clock.sleep(LOOK_S)
            now, done = self._clock.monotonic(), self._bytes_there
            is_news = done - said_bytes >= SAY_SHARE * self._num_bytes
            if now - said_at >= SAY_S or (is_news and now - said_at >= 1.0):
                self._say("under way")
                said_at, said_bytes = now, done
            self._give_up_if_hopeless(now)

    def _give_up_if_hopeless(self, now: float) -> None:
        what = f"state {short(self._incoming.manifest.digest)}"
        if self._over.is_set():
            return
        if self._pool.is_hopeless and not any(d.num_under_way for d in self._pool.donors):
            self._failure = PeerUnreachable(f"{what} is gone: nobody gives it any more")
        elif now - self._progressed_at >= GIVE_UP_S:
            self._failure = PeerUnreachable(f"{what}: next to nothing came for {GIVE_UP_S:.0f} s")
        elif self.is_outdone():
            self._failure = PeerUnreachable(f"{what}: clearly more peers hold another one")
        if self._failure is not None:
            self._over.set()

    def _say(self, how: str) -> None:
        told = self.progress()
        logger.info(
            "download of state %s %s: %s %%, %s of %s MB, %s Mbit/s, donors %s",
            short(self._incoming.manifest.digest),
            how,
            told["percent"],
            told["megabytes"],
            told["megabytes_in_all"],
            told["mbit_per_s"],
            ", ".join(str(donor.node_id) for donor in self._pool.chosen) or "to be asked",
        )

    # -- one worker ------------------------------------------------------------------

    async def _fetch_pieces(self) -> None:
        while not self._over.is_set():
            order = self._choose()
            if order is None:
                await self._clock.sleep(LOOK_S)
                continue
            donor, piece = order
            donor.num_under_way += 1
            try:
                await self._fetch(donor, piece)
            finally:
                donor.num_under_way -= 1

    def _choose(self) -> tuple[Donor, Piece] | None:
        now = self._clock.monotonic()
        for donor in self._pool.pick(now):
            piece = self._plan.take(donor.node_id, donor.rate, now)
            if piece is not None:
                self._pool.asked(donor, now)
                return donor, piece
        return None

    async def _fetch(self, donor: Donor, piece: Piece) -> None:
        turn, before = piece.turn, len(piece.received)
        began_at = self._clock.monotonic()
        try:
            await self._receive(donor, piece, turn)
        except PeerError as error:
            if piece.turn == turn:
                self._plan.release(piece)
            self._judge(donor, error)
            return
        now = self._clock.monotonic()
        if piece.turn != turn:
            return  # another donor goes on with it
        self._pool.gave(donor, len(piece.received) - before, now - began_at)
        self._plan.check(piece)
        await self._check(donor, piece)

    async def _check(self, donor: Donor, piece: Piece) -> None:
        if await asyncio.to_thread(self._incoming.place, piece.index, bytes(piece.received)):
            self._plan.finish(piece)
            if piece.sources == {donor.node_id}:
                self._givers.add(donor.node_id)
            if self._plan.is_complete:
                self._over.set()
            return
        error = WrongPayload(f"piece {piece.index} is not the one promised", peer=donor.node_id)
        logger.warning("%s: %s", donor.address, error)
        if piece.sources == {donor.node_id}:
            self._blame(donor.node_id, error)
            self._pool.drop(donor)
        self._plan.discard(piece)

    def _judge(self, donor: Donor, error: PeerError) -> None:
        now = self._clock.monotonic()
        match error:
            case _Busy():
                logger.debug("%s is busy", donor.address)
                self._pool.was_busy(donor, now)
            case _Gone():
                logger.info("%s does not hold the state (any more)", donor.address)
                self._pool.drop(donor)
            case _Lie():
                logger.warning("%s: %s", donor.address, error)
                self._blame(donor.node_id, error)
                self._pool.drop(donor)
            case ProtocolViolation():
                logger.info("%s refuses: %s", donor.address, error)
                self._pool.drop(donor)
            case _:
                logger.info("%s gives nothing: %s", donor.address, error)
                self._pool.failed(donor, now)

    # -- one piece -------------------------------------------------------------------

    async def _receive(self, donor: Donor, piece: Piece, turn: int) -> None:
        """Take what a donor brings until the piece is whole or somebody else brings it.

        Raises:
            PeerError: it does not come, or wrongly.
        """
        request = state_pb2.PieceRequest(
            digest=self._incoming.manifest.digest, piece=piece.index, offset=len(piece.received)
        ).SerializeToString()
        stream = self._rpc.stream(donor.address, "State/Piece", request, timeout_s=PIECE_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        until, before = loop.time() + STALL_S, len(piece.received)
        try:
            while piece.num_left and piece.turn == turn:
                message = await self._next(stream, donor, piece, turn, until)
                if piece.turn == turn:
                    self._take(message, donor, piece)
                    if len(piece.received) - before >= STALL_BYTES:
                        until, before = loop.time() + STALL_S, len(piece.received)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _next(
        self, stream: Any, donor: Donor, piece: Piece, turn: int, until: float
    ) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(until) as patience:
                piece.interrupt = lambda: patience.reschedule(loop.time())
                try:
                    message: bytes | None = await anext(stream, None)
                finally:
                    if piece.turn == turn:
                        piece.interrupt = _nothing
        except TimeoutError:
            if piece.turn != turn:
                return b""
            raise PeerUnreachable(f"next to nothing for {STALL_S} s", peer=donor.node_id) from None
        if message is None and piece.turn == turn:
            raise _Lie("a piece that ends too early", peer=donor.node_id)
        return message or b""

    def _take(self, message: bytes, donor: Donor, piece: Piece) -> None:
        chunk = _parse_chunk(message, donor.node_id)
        if chunk.refusal == state_pb2.REFUSAL_BUSY:
            raise _Busy("busy", peer=donor.node_id)
        if chunk.refusal:
            raise _Gone("gone", peer=donor.node_id)
        if not chunk.data or len(chunk.data) > piece.num_left:
            raise _Lie("a piece longer than promised, or an empty part", peer=donor.node_id)
        piece.received += chunk.data
        piece.sources.add(donor.node_id)
        donor.bytes_given += len(chunk.data)
        self.bytes_fetched += len(chunk.data)
        now = self._clock.monotonic()
        self._bytes_since += len(chunk.data)
        if self._bytes_since >= GIVE_UP_BYTES:
            self._progressed_at, self._bytes_since = now, 0
        self._came.append((now, len(chunk.data)))
        while self._came[0][0] < now - RATE_WINDOW_S:
            self._came.popleft()

    def _mbit_per_s(self) -> float:
        now = self._clock.monotonic()
        recent = sum(size for at, size in self._came if at >= now - RATE_WINDOW_S)
        return 8e-6 * recent / min(RATE_WINDOW_S, max(now - self._began_at, 0.1))


class _Busy(PeerUnreachable):
    """The donor serves as many as it wants to."""


class _Gone(PeerUnreachable):
    """The donor does not hold the state."""


class _Lie(ProtocolViolation):
    """An authenticated answer that no honest donor gives; not a refusal."""


def _parse_chunk(message: bytes, donor: NodeId) -> state_pb2.PieceChunk:
    if len(message) > limits.MAX_CHUNK_BYTES:
        raise MessageTooLarge(f"part of a piece: {len(message)} bytes", peer=donor)
    try:
        return parse(state_pb2.PieceChunk, message)
    except ProtocolViolation as error:
        raise _Lie(str(error), peer=donor) from error


def _nothing() -> None:
    pass


def _never() -> bool:
    return False
