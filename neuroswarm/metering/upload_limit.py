"""Spreads what a node sends over time: short statements at once, long ones as the limit allows.

Refuses to know what is sent.
"""

from __future__ import annotations

import asyncio

from neuroswarm.clock import Clock

SMALL_BYTES = 16 * 1024
"""Messages up to this never wait: a ballot behind a payload would hold up a round. The long ones
pay for them."""


class UploadLimit:
    """Bytes a second, over the life of the node; first come, first served.

    A message may go as soon as the time of all that went before is over, so that whatever the
    sizes, n bytes take n / limit seconds but for the last message.
    """

    def __init__(self, bytes_per_s: float | None, clock: Clock) -> None:
        """Let that many pass; None lets everything pass."""
        self.bytes_per_s = bytes_per_s
        self.num_bytes = 0
        """Bytes that have passed, or were noted."""
        self.held_up_s = 0.0
        """Seconds that messages have waited, added up."""
        self._clock = clock
        self._free_at = clock.monotonic()
        self._turn = asyncio.Lock()

    @property
    def backlog_s(self) -> float:
        """Seconds until all that has passed is paid for; 0 if it is."""
        return max(0.0, self._free_at - self._clock.monotonic())

    async def take(self, num_bytes: int) -> float:
        """Wait until a message of so many bytes may go; returns for how many seconds.

        Cancellation: nothing was taken, and the next in turn goes on.
        """
        if self.bytes_per_s is None or num_bytes <= SMALL_BYTES:
            self.note(num_bytes)
            return 0.0
        came_at = self._clock.monotonic()
        async with self._turn:
            while (wait_s := self.backlog_s) > 0:
                await self._clock.sleep(wait_s)
            self.note(num_bytes)
        waited_s = self._clock.monotonic() - came_at
        self.held_up_s += waited_s
        return waited_s

    def note(self, num_bytes: int) -> None:
        """Count bytes that go anyway: later messages wait for them."""
        self.num_bytes += num_bytes
        if self.bytes_per_s is not None:
            now = self._clock.monotonic()
            self._free_at = max(now, self._free_at) + num_bytes / self.bytes_per_s
