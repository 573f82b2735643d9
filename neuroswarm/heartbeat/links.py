"""Which links carry heartbeats in one direction only.

Every datagram says whether its sender has lately heard the receiver itself. Whoever hears a peer
that goes on not hearing it knows what is wrong, and can say so. Refuses to know why: a firewall, a
NAT, a wrong address. It is the peer's word, and nothing but a line for people follows from it.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass

from neuroswarm.values import NodeId

MAX_LINKS = 4096
"""Peers whose links are known; the one that was silent longest is dropped."""

LATELY_INTERVALS = 3.0
"""Heartbeat intervals without a datagram after which a peer is not heard any more."""


class Hears(enum.IntEnum):
    """Whether the sender has heard the receiver, numbered as `neuroswarm.v1.Hears`."""

    UNKNOWN = 0
    """The sender is of an earlier version, or of a later one."""
    YES = 1
    NO = 2


@dataclass(slots=True)
class _Link:
    heard_at: float
    deaf_since: float | None = None
    """Since when the peer says that it does not hear this node; None if it does."""


class Links:
    """Links to the peers whose own datagrams arrive; hearsay does not count."""

    def __init__(self, interval_s: float) -> None:
        """Start empty; `interval_s` is the time between two heartbeats, > 0."""
        self._lately_s = LATELY_INTERVALS * interval_s
        self._links: OrderedDict[NodeId, _Link] = OrderedDict()

    def note(self, peer: NodeId, says: Hears, now: float) -> None:
        """Take a peer's own datagram, which says whether the peer hears this node."""
        link = self._links.setdefault(peer, _Link(now))
        link.heard_at = now
        if says is Hears.YES:
            link.deaf_since = None
        elif says is Hears.NO and link.deaf_since is None:
            link.deaf_since = now
        self._links.move_to_end(peer)
        if len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)

    def tell(self, peer: NodeId | None, now: float) -> Hears:
        """What a datagram to that peer says; None where nobody was heard yet.

        Who is heard from elsewhere gets both answers in turn, and takes the better one.
        """
        link = None if peer is None else self._links.get(peer)
        is_heard = link is not None and now - link.heard_at <= self._lately_s
        return Hears.YES if is_heard else Hears.NO

    def one_way(self, now: float) -> list[NodeId]:
        """Peers that are heard, but for 3 intervals have not heard this node; by node id."""
        return sorted(
            peer
            for peer, link in self._links.items()
            if link.deaf_since is not None
            and now - link.heard_at <= self._lately_s < now - link.deaf_since
        )
