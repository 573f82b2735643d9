"""What a donor gives at most: places, bytes a second, states held on to for slow joiners.

Knows nothing of pieces or messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.diloco.state import OuterState
from neuroswarm.values import NodeId

PIN_S = 60.0
"""Seconds after its last request for a state for which it is held on to for a caller."""

MAX_PINNED = 2
"""States held on to that the node itself has let go of."""

SLOT_S = 5.0
"""Seconds after its last piece for which a downloader keeps its place."""

MAX_PIECES_AT_ONCE = 4
"""Pieces on their way to one downloader."""

LEAST_TAKEN_BYTES = 32 * 1024
LEAST_TAKEN_S = 10.0
"""A downloader that takes fewer bytes in so many seconds loses its place."""

LONGEST_S = 600.0
"""Who has had a place for longer may have to make room for others."""

REST_S = 30.0
"""Seconds for which who lost its place gets none."""


@dataclass(eq=False, slots=True)
class Place:
    """That of one downloader."""

    began_at: float
    seen_at: float
    num_under_way: int = 0
    taken_at: float = 0.0
    """Since when it took `bytes_taken`, without the time in which this node held it up."""
    bytes_taken: int = 0
    is_lost: bool = False

    def took(self, num_bytes: int, now: float) -> None:
        """It took bytes."""
        self.bytes_taken += num_bytes
        if self.bytes_taken >= LEAST_TAKEN_BYTES:
            self.taken_at, self.bytes_taken = now, 0

    def was_held_up(self, waited_s: float, now: float) -> None:
        """It had to wait for this node, which is not held against it."""
        self.taken_at = min(now, self.taken_at + waited_s)

    def is_left(self, now: float) -> bool:
        """Whether its downloader has gone away, or is done."""
        return not self.num_under_way and now - self.seen_at >= SLOT_S

    def is_wasted(self, now: float) -> bool:
        """Whether its downloader takes next to nothing."""
        return now - self.taken_at >= LEAST_TAKEN_S


class Places:
    """Who may download at once."""

    def __init__(self, max_places: int) -> None:
        """Allow that many."""
        self._max_places = max_places
        self._places: dict[NodeId, Place] = {}
        self._rests_until: dict[NodeId, float] = {}

    def count(self, now: float) -> int:
        """Places taken at monotonic time `now`; those not used well are taken away."""
        for caller, place in list(self._places.items()):
            if place.is_left(now):
                del self._places[caller]
            elif place.is_wasted(now):
                self._take_away(caller, now)
        for caller in [c for c, until in self._rests_until.items() if until <= now]:
            del self._rests_until[caller]
        return len(self._places)

    @contextmanager
    def taken(self, caller: NodeId, clock: Clock) -> Iterator[Place | None]:
        """Hold a place for the time of a piece; gives None if there is none."""
        place = self._find(caller, clock.monotonic())
        if place is None or place.num_under_way >= MAX_PIECES_AT_ONCE:
            yield None
            return
        place.num_under_way += 1
        place.seen_at = clock.monotonic()
        try:
            yield place
        finally:
            place.num_under_way -= 1
            place.seen_at = clock.monotonic()

    def _find(self, caller: NodeId, now: float) -> Place | None:
        count = self.count(now)
        if caller in self._places:
            return self._places[caller]
        if caller in self._rests_until or (count >= self._max_places and not self._make_room(now)):
            return None
        place = self._places[caller] = Place(now, now, taken_at=now)
        return place

    def _make_room(self, now: float) -> bool:
        """The one served longest gives way, if that is long enough."""
        caller = min(self._places, key=lambda c: self._places[c].began_at, default=None)
        if caller is None or now - self._places[caller].began_at < LONGEST_S:
            return False
        self._take_away(caller, now)
        return True

    def _take_away(self, caller: NodeId, now: float) -> None:
        self._places.pop(caller).is_lost = True
        self._rests_until[caller] = now + REST_S


class Pace:
    """Spreads bytes over time, first come, first served."""

    def __init__(self, bytes_per_s: float, clock: Clock) -> None:
        """Let that many pass."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._free_at = float("-inf")
        self._turn = asyncio.Lock()

    async def take(self, num_bytes: int) -> float:
        """Wait until so many bytes may go; returns for how many seconds.

        Cancellation: nothing was taken, and the next in turn goes on.
        """
        came_at = self._clock.monotonic()
        async with self._turn:
            await self._clock.sleep(max(0.0, self._free_at - self._clock.monotonic()))
            now = self._clock.monotonic()
            self._free_at = max(now, self._free_at) + num_bytes / self._bytes_per_s
        return now - came_at


@dataclass(slots=True)
class _Pin:
    state: OuterState
    since: float
    asked_at: float


class Pins:
    """States held on to for those who download them, one for each."""

    def __init__(self) -> None:
        """Hold on to nothing yet."""
        self._pins: dict[NodeId, _Pin] = {}

    def put(self, caller: NodeId, state: OuterState, now: float) -> None:
        """Hold on to a state, and not to what this caller asked for before."""
        known = self._pins.get(caller)
        if known is not None and known.state.digest == state.digest:
            known.asked_at = now
        else:
            self._pins[caller] = _Pin(state, now, now)

    def find(self, digest: bytes) -> OuterState | None:
        """The state with that digest, if it is held on to."""
        pins = self._pins.values()
        return next((pin.state for pin in pins if pin.state.digest == digest), None)

    def digests(self) -> list[bytes]:
        """Of the states held on to, the one that was asked for first coming first."""
        pins = sorted(self._pins.values(), key=lambda pin: pin.since)
        return list(dict.fromkeys(pin.state.digest for pin in pins))

    def let_go(self, held: Collection[bytes], now: float) -> None:
        """Let go of what nobody asks for, and beyond the bound of what was asked for last.

        Args:
            held: Digests of the states that the node holds anyway.
            now: Monotonic time.
        """
        recent = {c: pin for c, pin in self._pins.items() if now - pin.asked_at < PIN_S}
        self._pins = recent
        beyond = [digest for digest in self.digests() if digest not in held][MAX_PINNED:]
        self._pins = {c: pin for c, pin in recent.items() if pin.state.digest not in beyond}

    def clear(self) -> None:
        """Let go of everything."""
        self._pins.clear()
