"""Which piece of a state is fetched from whom next.

Decides only: no I/O, no clock. Times are instants of a monotonic clock, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from neuroswarm.values import NodeId

TAKEOVER_FACTOR = 2.0
"""A piece changes hands at the end if its present bringer needs so many times longer for the rest
than the new one would, and"""

TAKEOVER_S = 1.0
"""so many seconds besides."""

RATE_AFTER_S = 0.5
"""How long a piece must have been on its way before its pace is judged."""


@dataclass(eq=False, slots=True)
class Piece:
    """A piece that was asked for at least once and is not there yet."""

    index: int
    size: int
    received: bytearray = field(default_factory=bytearray)
    """What came of it, kept when another donor goes on."""
    sources: set[NodeId] = field(default_factory=set)
    """Who brought bytes of it."""
    bringer: NodeId | None = None
    """Who brings it now."""
    turn: int = 0
    """Grows whenever it changes hands: whoever has an older turn is to stop."""
    began_at: float = 0.0
    began_with: int = 0
    """Bytes that were there when the present bringer began."""
    is_taken_over: bool = False
    is_mixed_badly: bool = False
    """It came wrong from several donors: from now on one alone brings it whole."""
    interrupt: Callable[[], None] = field(default=lambda: None, repr=False)
    """Wakes the present bringer's receiver."""

    @property
    def num_left(self) -> int:
        """Bytes that are missing."""
        return self.size - len(self.received)

    def rate(self, now: float) -> float | None:
        """Bytes per second from its present bringer; None while it is too early to say."""
        elapsed_s = now - self.began_at
        if elapsed_s < RATE_AFTER_S:
            return None
        return (len(self.received) - self.began_with) / elapsed_s


class PiecePlan:
    """What is missing, under way and done."""

    def __init__(self, sizes: Sequence[int], done: Iterable[int] = ()) -> None:
        """Start.

        Args:
            sizes: Bytes of every piece.
            done: Pieces that are there already.
        """
        self._sizes = sizes
        there = set(done)
        self._free = deque(i for i in range(len(sizes)) if i not in there)
        self._broken: deque[Piece] = deque()
        self._under_way: dict[int, Piece] = {}
        self._num_left = len(self._free)
        self.bytes_done = sum(sizes[i] for i in there)

    @property
    def num_left(self) -> int:
        """Pieces that are not there yet."""
        return self._num_left

    @property
    def is_complete(self) -> bool:
        """Whether all are there."""
        return self._num_left == 0

    def take(self, donor: NodeId, rate: float | None, now: float) -> Piece | None:
        """The piece that a donor is asked for next; None if it has nothing to do.

        Pieces that another donor left unfinished come first, then new ones in order. When there
        are none, the one that would be finished last is taken from a much slower donor.

        Args:
            donor: Who has room.
            rate: Its bytes per second for one piece, as seen so far; None if not seen.
            now: The time.
        """
        piece = self._next_free() or self._slowest(donor, rate, now)
        if piece is None:
            return None
        piece.interrupt()
        if piece.is_mixed_badly:
            piece.received.clear()
            piece.sources.clear()
        piece.turn += 1
        piece.bringer = donor
        piece.began_at, piece.began_with = now, len(piece.received)
        self._under_way[piece.index] = piece
        return piece

    def release(self, piece: Piece) -> None:
        """Its bringer gave up; what came stays."""
        del self._under_way[piece.index]
        piece.bringer, piece.interrupt = None, _nothing
        self._broken.append(piece)

    def check(self, piece: Piece) -> None:
        """All of it came; nobody else is to take it while it is checked."""
        piece.turn += 1
        piece.bringer, piece.interrupt = None, _nothing

    def finish(self, piece: Piece) -> None:
        """It is there and right."""
        del self._under_way[piece.index]
        self._num_left -= 1
        self.bytes_done += piece.size

    def discard(self, piece: Piece) -> None:
        """It is wrong: begin it anew."""
        piece.is_mixed_badly = piece.is_mixed_badly or len(piece.sources) > 1
        piece.received.clear()
        piece.sources.clear()
        self.release(piece)

    def _next_free(self) -> Piece | None:
        if self._broken:
            return self._broken.popleft()
        if self._free:
            index = self._free.popleft()
            return Piece(index, self._sizes[index])
        return None

    def _slowest(self, donor: NodeId, rate: float | None, now: float) -> Piece | None:
        if not rate:
            return None
        worst: tuple[float, Piece] | None = None
        for piece in self._under_way.values():
            if piece.bringer in (None, donor) or piece.is_taken_over:
                continue
            present = piece.rate(now)
            if present is None:
                continue
            left_s = piece.num_left / present if present else float("inf")
            here_s = (piece.size if piece.is_mixed_badly else piece.num_left) / rate
            is_worth_it = left_s > TAKEOVER_FACTOR * here_s + TAKEOVER_S
            if is_worth_it and (worst is None or left_s > worst[0]):
                worst = (left_s, piece)
        if worst is None:
            return None
        worst[1].is_taken_over = True
        return worst[1]


def _nothing() -> None:
    pass
