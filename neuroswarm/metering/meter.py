"""Counts the bytes that a node moves, keeps the count on disk, and says what the caps allow.

Refuses to know what is sent, and what follows from an allowance.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Protocol

from neuroswarm.clock import Clock
from neuroswarm.config.metering import MeteringConfig
from neuroswarm.errors import CheckpointError, SchemaMismatch
from neuroswarm.metering.allowance import Allowance, Caps
from neuroswarm.metering.calendar import Calendar
from neuroswarm.metering.framing import Moved
from neuroswarm.metering.tally import Tally, decode_tally, encode_tally
from neuroswarm.metering.upload_limit import UploadLimit
from neuroswarm.service import Service

logger = logging.getLogger(__name__)

LOOK_S = 1.0
SAVE_S = 300.0
UNSEEN_SHARE = 0.005
"""Share of the smallest cap after which the count is written at the latest."""

LEAST_UNSEEN_BYTES = 64 * 1024

Source = Callable[[], Moved]


class CountFile(Protocol):
    """Where the count is kept; both block, and raise CheckpointError if the disk refuses."""

    def read(self) -> bytes | None:
        """What was written last; None if nothing was."""
        ...

    def write(self, data: bytes) -> None:
        """Replace it durably."""
        ...


class Meter(Service):
    """The node's meter: what it has moved today and this month, and what it may still move.

    It is looked at before everything large, and each second. Belongs to the event loop.
    """

    name = "meter"

    def __init__(self, cfg: MeteringConfig, file: CountFile, clock: Clock) -> None:
        """Count from nothing; `start` takes up what is kept.

        Args:
            cfg: The limits.
            file: Keeps the count.
            clock: The machine's, not one that leaves out sleep: days turn meanwhile.
        """
        super().__init__()
        self.caps = Caps(cfg.cap_bytes("day"), cfg.cap_bytes("month"), cfg.reserve)
        self.limit = UploadLimit(cfg.max_upload_bytes_per_s, clock)
        self.tally = Tally()
        self.allowance = Allowance.OPEN
        self.is_silent = False
        """Whether nothing may be sent, as of the last look."""
        self.on_change: Callable[[Allowance, Allowance], None] = _ignore
        """Told (before, now) whenever the allowance changes, and at the start if it is not open."""
        self._calendar = Calendar(clock, month_starts_on=cfg.month_starts_on)
        self._looked_at = self._calendar.now()
        self._file = file
        self._clock = clock
        self._sources: list[Source] = []
        self._seen: list[Moved] = []
        self._sent_here = 0
        self._saved_at = clock.monotonic()
        self._saved_bytes = 0
        self._is_disk_failing = False
        self._numbers = itertools.count(1)
        self._written = 0
        self._writing = threading.Lock()
        self._turned = asyncio.Event()

    def watch(self, source: Source) -> None:
        """Count what a source moves from now on: it tells what it has moved since its start."""
        self._sources.append(source)
        self._seen.append(source())

    # -- what others ask -------------------------------------------------------------

    def may_spend(self, num_bytes: int) -> bool:
        """Whether so many bytes more leave the reserve of every cap untouched."""
        self.look()
        room = self.caps.room(self.tally)
        return room is None or num_bytes <= room

    async def until_heard(self) -> None:
        """Return once the node may send; at once if it may."""
        while self.is_silent:
            self._turned.clear()
            await self._turned.wait()

    def look(self) -> None:
        """Count what was moved since the last look, turn the periods, judge."""
        now = self._looked_at = self._calendar.now()
        if self.tally.turn(self._calendar.day(now), self._calendar.month(now)):
            self._saved_at = float("-inf")  # a new period is written at once
        moved = Moved()
        for index, source in enumerate(self._sources):
            found, seen = source(), self._seen[index]
            self._seen[index] = found
            moved += Moved(max(0, found.sent - seen.sent), max(0, found.received - seen.received))
        self.tally.add(moved.sent, moved.received)
        self._sent_here += moved.sent
        if (unpaid := self._sent_here - self.limit.num_bytes) > 0:
            self.limit.note(unpaid)  # framing, datagrams, HTTP: what never asked
        self._judge(now)

    def _judge(self, now: float) -> None:
        before, self.allowance = self.allowance, self.caps.judge(self.tally)
        if before is self.allowance:
            return
        self._say(now)
        is_silent = self.allowance is Allowance.SILENT
        self.is_silent = self.is_silent and is_silent  # what is said at the change may go out
        self.on_change(before, self.allowance)
        self.is_silent = is_silent
        self._turned.set()

    def _say(self, now: float) -> None:
        used = " and ".join(
            f"{count.total / 1e6:.1f} of {cap / 1e6:.1f} MB {what}"
            for count, cap, what in (
                (self.tally.day, self.caps.day_bytes, "today"),
                (self.tally.month, self.caps.month_bytes, "this month"),
            )
            if cap is not None
        )
        match self.allowance:
            case Allowance.OPEN:
                logger.info("data cap: a new period, %s used: contributing again", used)
            case Allowance.SPARING:
                logger.warning(
                    "data cap: %s used: no contributions until %s; training goes on",
                    used,
                    self._tell(self._opens_at(now)),
                )
            case Allowance.SILENT:
                logger.warning(
                    "data cap: %s used: out of the swarm until %s; training goes on",
                    used,
                    self._tell(self._opens_at(now)),
                )

    def _opens_at(self, now: float) -> float:
        """When the node contributes again."""
        cap = self.caps.month_bytes
        is_month_full = cap is not None and self.tally.month.total >= cap * (1 - self.caps.reserve)
        return self._calendar.next_month(now) if is_month_full else self._calendar.next_day(now)

    def _tell(self, instant: float) -> str:
        return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")

    def get_status(self) -> Mapping[str, object]:
        """The part of `/status` on traffic, as JSON values; as of the last look, for any thread."""
        now = self._looked_at
        is_open = self.allowance is Allowance.OPEN
        return {
            "allowance": self.allowance.value,
            "is_capped": not is_open,
            "open_again_at": None if is_open else self._tell(self._opens_at(now)),
            "day": self._describe(self.tally.day.label, "day", self._calendar.next_day(now)),
            "month": self._describe(
                self.tally.month.label, "month", self._calendar.next_month(now)
            ),
            "max_upload_bytes_per_s": self.limit.bytes_per_s,
            "upload_backlog_s": round(self.limit.backlog_s, 3),
            "upload_held_up_s_total": round(self.limit.held_up_s, 3),
        }

    def _describe(self, label: str, period: str, ends_at: float) -> Mapping[str, object]:
        count = self.tally.day if period == "day" else self.tally.month
        return {
            "begins": label,
            "ends": self._tell(ends_at),
            "sent_bytes": count.sent,
            "received_bytes": count.received,
            "cap_bytes": self.caps.day_bytes if period == "day" else self.caps.month_bytes,
        }

    # -- life ------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        await self._take_up()
        self.look()
        await self._save(unseen_bytes=self._unseen_bytes)
        stack.push_async_callback(self._save_last)

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._look_on(), self._keep())

    async def _look_on(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            is_old = self._clock.monotonic() - self._saved_at >= SAVE_S
            moved = self.tally.month.total - self._saved_bytes
            if (is_old and moved) or (self.caps.are_set and moved >= self._unseen_bytes // 2):
                await self._save(unseen_bytes=self._unseen_bytes)

    @property
    def _unseen_bytes(self) -> int:
        """Bytes that may be moved before the count is written again; 0 without caps."""
        smallest = self.caps.smallest
        return 0 if smallest is None else max(LEAST_UNSEEN_BYTES, int(smallest * UNSEEN_SHARE))

    async def _take_up(self) -> None:
        try:
            data = await asyncio.to_thread(self._file.read)
            if data is None:
                return
            self.tally, at = decode_tally(data)
        except (CheckpointError, SchemaMismatch) as error:
            logger.warning("bytes moved before are not known, counting from 0: %s", error)
        else:
            self._calendar.resume(at)

    async def _save_last(self) -> None:
        self.look()
        await self._save(unseen_bytes=0)

    async def _save(self, *, unseen_bytes: int) -> None:
        self._saved_at, self._saved_bytes = self._clock.monotonic(), self.tally.month.total
        data = encode_tally(self.tally, at=self._calendar.now(), unseen_bytes=unseen_bytes)
        try:
            await asyncio.to_thread(self._write, next(self._numbers), data)
        except CheckpointError as error:
            if not self._is_disk_failing:
                logger.warning("%s (bytes are counted on, a restart may forget some)", error)
            self._is_disk_failing = True
        else:
            self._is_disk_failing = False

    def _write(self, number: int, data: bytes) -> None:
        """Write in a worker thread, which goes on when its waiter is cancelled."""
        with self._writing:
            if number > self._written:  # a later one was not faster
                self._file.write(data)
                self._written = number


def _ignore(_before: Allowance, _now: Allowance) -> None:
    pass
