"""One known peer: what it says of itself, and what this node found out about it.

Knows nothing of other peers.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroswarm.membership.addresses import is_same_host
from neuroswarm.membership.peer_host import choose_host
from neuroswarm.values import Endpoint, NodeId, PeerAddress, Reach
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Signed


@dataclass(slots=True)
class Peer:
    """One known peer."""

    node_id: NodeId
    heartbeat: Heartbeat
    signed: Signed
    last_seen_s: float
    """Last sign of life on the monotonic clock."""
    host_seen: str | None = None
    """Source address of its last own message; None while it is known by hearsay only."""
    host_since_s: float = 0.0
    """Since when it is reached at the host where it is."""
    rtt_s: float | None = None
    """Smoothed round trip of calls; None before the first."""
    host_answered: str | None = None
    """Host at which it last answered a call and proved to be the one called."""
    hosts_failed: tuple[str, ...] = ()
    """Hosts at which calls to it failed since one was answered, the newest failure last."""
    is_suspected: bool = False
    """A call to it failed since its last sign of life."""
    clock_offset_s: float | None = None
    """How far its clock is before this machine's; None before it was heard itself."""
    hole: Endpoint | None = None
    """Where its last own datagram came from: the way back through a NAT, while that lasts."""
    is_dialled: bool | None = None
    """Whether a connection of its own to the announced endpoint came about; None: not tried."""

    @property
    def host(self) -> str:
        """Where to reach it: the host that works, of those announced or where it was seen."""
        return choose_host(
            self.heartbeat.hosts,
            seen=self.host_seen,
            answered=self.host_answered,
            failed=self.hosts_failed,
        )

    @property
    def is_proven_there(self) -> bool:
        """Whether it was heard from its host, or answered a call there.

        Otherwise it may just have named somebody who wants nothing of all this.
        """
        return any(is_same_host(self.host, host) for host in (self.host_seen, self.host_answered))

    @property
    def address(self) -> PeerAddress:
        """Where it answers calls."""
        return PeerAddress(self.node_id, Endpoint(self.host, self.heartbeat.grpc_port))

    @property
    def heartbeat_endpoint(self) -> Endpoint:
        """Where it takes heartbeats; port 0 if it takes none.

        Where it sends from, which is the only way behind a NAT, or where it says to be.
        """
        if self.hole is not None and self.heartbeat.heartbeat_port:
            return self.hole
        return self.announced_endpoint

    @property
    def announced_endpoint(self) -> Endpoint:
        """Where it says that it takes heartbeats; port 0 if it takes none."""
        return Endpoint(self.host, self.heartbeat.heartbeat_port)

    @property
    def is_heard_there(self) -> bool:
        """Whether `heartbeat_endpoint` is surely its own, and not somebody's it just named."""
        return self.hole is not None or self.is_proven_there

    @property
    def needs_relay(self) -> bool:
        """Whether calls go through one of its relays: none came about without, or nobody knows.

        Where this node has not tried, it believes those that have.
        """
        if self.is_dialled is not None:
            return bool(self.heartbeat.relays) and not self.is_dialled
        return bool(self.heartbeat.relays) and self.heartbeat.reach is not Reach.OPEN

    @property
    def heartbeat_endpoints(self) -> tuple[Endpoint, ...]:
        """Where to tell it something: where it is, or, until that is known, where it may be."""
        if self.is_heard_there or not self.heartbeat.other_hosts:
            return (self.heartbeat_endpoint,)
        port = self.heartbeat.heartbeat_port
        return tuple(Endpoint(host, port) for host in self.heartbeat.hosts)

    def is_at(self, host: str) -> bool:
        """Whether it announces that host, or was seen there."""
        hosts = (*self.heartbeat.hosts, self.host_seen)
        return any(is_same_host(host, known) for known in hosts)

    def note_move(self, now: float) -> None:
        """Note that it says to be elsewhere now: where it was, proves nothing any more."""
        self.host_since_s = now
        self.host_seen = self.host_answered = self.is_dialled = None
        self.hosts_failed = ()

    def note_failure(self) -> None:
        """Note that a call at its host failed."""
        failed = self.host
        self.hosts_failed = (*(h for h in self.hosts_failed if h != failed), failed)

    def note_answer(self, host: str) -> None:
        """Note that it answered a call at one of its hosts."""
        self.host_answered, self.hosts_failed = host, ()
