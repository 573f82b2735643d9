"""A node's meter and the rest of the node: what is counted, and when the node is absent.

Knows nothing of rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from neuroswarm.clock import Clock
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.metering.allowance import Allowance
from neuroswarm.metering.framing import UPKEEP_BYTES_PER_S, Moved, estimate_http
from neuroswarm.metering.meter import Meter
from neuroswarm.node.assembly import Membership
from neuroswarm.node.metered_carriers import MeteredCarriers
from neuroswarm.node.newcomer import Newcomer
from neuroswarm.node.vigil import Vigil


class Absence:
    """Leaves the swarm when the caps are used up, and comes back when a period begins."""

    def __init__(
        self,
        heartbeat: HeartbeatService,
        vigil: Vigil,
        newcomer: Newcomer,
        *,
        listen_s: float,
        is_stopping: Callable[[], bool],
    ) -> None:
        """Wire up.

        Args:
            heartbeat: Tells the peers.
            vigil: Keeps the node from speaking in rounds for a while.
            newcomer: And until it has caught up.
            listen_s: For how long at least once it is back: or it would take itself for alone.
            is_stopping: Whether the node is leaving anyway.
        """
        self._heartbeat = heartbeat
        self._vigil = vigil
        self._newcomer = newcomer
        self._listen_s = listen_s
        self._is_stopping = is_stopping

    def on_change(self, before: Allowance, now: Allowance) -> None:
        """The allowance has changed."""
        if self._is_stopping():
            return
        if now is Allowance.SILENT:
            self._heartbeat.leave()
        elif before is Allowance.SILENT:
            self._vigil.listen(self._listen_s)
            self._newcomer.comes_back()
            self._heartbeat.come_back()


class Upkeep:
    """What connections to peers cost while nothing is said."""

    def __init__(self, peers: PeerTable, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._seen_at = clock.monotonic()
        self._num_bytes = 0.0

    def moved(self) -> Moved:
        """Bytes on the link since the start, by estimate."""
        now = self._clock.monotonic()
        passed_s, self._seen_at = now - self._seen_at, now
        self._num_bytes += passed_s * UPKEEP_BYTES_PER_S * len(self._peers.alive(now))
        return Moved(int(self._num_bytes), int(self._num_bytes))


class HttpEnd(Protocol):
    """Whoever counts the bodies that it sends and takes over HTTP."""

    bytes_sent: int
    bytes_received: int
    num_requests: int


def moved_over_http(end: HttpEnd) -> Moved:
    """Bytes on the link since the start, by estimate."""
    return Moved(
        estimate_http(end.bytes_sent, end.num_requests),
        estimate_http(end.bytes_received, end.num_requests),
    )


def watch_traffic(
    meter: Meter,
    carriers: MeteredCarriers,
    membership: Membership,
    web: HttpEnd,
    *,
    clock: Clock,
) -> None:
    """Let the meter count everything that this node moves, and end what it moves for others."""
    membership.relaying.desk.may_relay = lambda: meter.allowance is Allowance.OPEN
    upkeep = Upkeep(membership.peers, clock)
    for end in (*carriers.metered, upkeep):
        meter.watch(end.moved)
    for http in (web, membership.acquaintance.search.asker):
        meter.watch(partial(moved_over_http, http))
