"""Watches over this node's own life: that it ran without a gap, alone under its key, on time.

A node that was suspended, or was just started on an old key, listens before it speaks: what it
would say may be about a round that is over, or said by a copy of it already. Knows no rounds and
no sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from neuroswarm.clock import LivedClock
from neuroswarm.errors import ClonedIdentity
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.presence import Presence
from neuroswarm.membership.swarm_time import TOLERABLE_S, median_offset

logger = logging.getLogger(__name__)

LISTEN_INTERVALS = 1.2
"""Heartbeat intervals of listening: by then every live peer was heard, whatever its jitter."""

PAUSE_INTERVALS = 1.5
MIN_PAUSE_S = 2.0
TICKS_PER_INTERVAL = 4


def longest_pause_s(interval_s: float) -> float:
    """How long the event loop may stand still before that is a gap, for a heartbeat interval."""
    return max(MIN_PAUSE_S, PAUSE_INTERVALS * interval_s)


class Vigil:
    """Says when this node may speak in rounds."""

    def __init__(
        self,
        clock: LivedClock,
        presence: Presence,
        peers: PeerTable,
        *,
        on_wake: Callable[[], None],
    ) -> None:
        """Watch from now on.

        Args:
            clock: Notices gaps.
            presence: Knows whether another node goes by this one's key.
            peers: Their clocks, and the heartbeat interval.
            on_wake: Called after a gap, to tell everyone that this node is back.
        """
        self._clock = clock
        self._presence = presence
        self._peers = peers
        self._on_wake = on_wake
        self._listen_s = LISTEN_INTERVALS * peers.interval_s
        self._listen_until = clock.monotonic()
        self._num_gaps = clock.num_gaps
        self._is_clock_told = False

    @property
    def num_gaps(self) -> int:
        """How often this node was suspended."""
        return self._clock.num_gaps

    @property
    def clock_offset_s(self) -> float | None:
        """How far the peers' clocks are before this machine's; None without peers."""
        alive = self._peers.alive(self._clock.monotonic())
        return median_offset(p.clock_offset_s for p in alive if p.clock_offset_s is not None)

    def listen(self, at_least_s: float = 0.0) -> None:
        """Only listen for a while: somebody may go by this node's key already."""
        listen_s = max(self._listen_s, at_least_s)
        self._listen_until = self._clock.monotonic() + listen_s

    def may_speak(self) -> bool:
        """Whether this node may sign what counts in rounds; from then on it is settled."""
        now = self._clock.monotonic()  # notices a gap before anything is done about deadlines
        if self._presence.is_lost or now < self._listen_until:
            return False
        if now < self._clock.woke_at + self._listen_s:
            return False
        self._presence.settle()
        return True

    async def watch(self) -> None:
        """Look after the node for as long as it runs.

        Raises:
            ClonedIdentity: another node goes on under this one's key.
        """
        while True:
            self._look()
            await self._clock.sleep(self._peers.interval_s / TICKS_PER_INTERVAL)

    def _look(self) -> None:
        self._clock.monotonic()
        if self._presence.is_lost:
            raise ClonedIdentity(
                f"another node goes on under this node's key {self._peers.me} (a copied state "
                "folder or card image)"
            )
        if self._clock.num_gaps != self._num_gaps:
            self._num_gaps = self._clock.num_gaps
            logger.warning("was suspended for %.0f s: catching up", self._clock.missed_s)
            self._presence.renew()
            self._on_wake()
        self._check_clock()

    def _check_clock(self) -> None:
        offset_s = self.clock_offset_s
        is_off = offset_s is not None and abs(offset_s) > TOLERABLE_S
        if is_off and not self._is_clock_told:
            logger.warning(
                "this machine's clock is %.0f s %s the swarm's: nothing here depends on it, but "
                "set it right (NTP)",
                abs(offset_s or 0.0),
                "behind" if (offset_s or 0.0) > 0 else "before",
            )
        self._is_clock_told = is_off
