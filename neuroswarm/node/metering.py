"""What of a node's traffic its meter counts: calls, datagrams, HTTP, and connections kept alive.

Refuses to know what follows from it.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from neuroswarm.clock import Clock
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.metering.allowance import Allowance
from neuroswarm.metering.framing import UPKEEP_BYTES_PER_S, Moved, estimate_http
from neuroswarm.metering.meter import Meter
from neuroswarm.node.assembly import Membership
from neuroswarm.node.metered_carriers import MeteredCarriers


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
