"""Who may hold a state: the peers that a download turns to, best first.

Knows nothing of how states are sent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from neuroswarm.clock import Clock
from neuroswarm.membership.peer import Peer
from neuroswarm.values import NodeId, PeerAddress

OUTDONE_S = 10.0
OUTDONE_FACTOR = 2
OUTDONE_BY = 2
"""A state is outdone when for so many seconds more than so many times as many peers, and at least
so many more, hold another one."""

SATURATED = 0.9
"""Share of its link in use above which a peer is asked after the others."""


class Candidates:
    """The live peers that may hold a state, in an order that stays for one download.

    Those that advertise it come first, then those that have moved on from it or never said so:
    nodes keep their latest states for a while. Among equals chance decides, so that several
    joiners spread over the donors; peers with a busy link come last among their equals.
    """

    def __init__(
        self,
        live: Callable[[], Sequence[Peer]],
        digest: bytes,
        *,
        known: Collection[NodeId] = (),
        seed: int | None = None,
    ) -> None:
        """Look for holders.

        Args:
            live: The live peers of this swarm now.
            digest: Digest of the state.
            known: Peers that hold it for certain, such as one that proved to have been there.
            seed: Of the order; None for chance.
        """
        self._live = live
        self._digest = digest
        self._known = set(known)
        self._random = random.Random(seed)
        self._order: dict[NodeId, float] = {}

    def __call__(self) -> list[PeerAddress]:
        """The peers to ask now, best first."""
        holders = [peer for peer in self._live() if peer.heartbeat.digest]
        self._known |= {p.node_id for p in holders if p.heartbeat.digest == self._digest}
        return [peer.address for peer in sorted(holders, key=self._rank)]

    def know(self, holders: Collection[NodeId]) -> None:
        """Note peers that hold the state for certain, whatever they advertise."""
        self._known |= set(holders)

    def count(self) -> tuple[int, int]:
        """Live peers that advertise the state or once did, and the most that hold another one."""
        self()
        live = self._live()
        others = Counter(p.heartbeat.digest for p in live if p.node_id not in self._known)
        others.pop(b"", None)
        return sum(p.node_id in self._known for p in live), max(others.values(), default=0)

    def _rank(self, peer: Peer) -> tuple[bool, bool, float]:
        if peer.node_id not in self._order:
            self._order[peer.node_id] = self._random.random()
        is_busy = peer.heartbeat.network_saturation >= SATURATED
        return peer.node_id not in self._known, is_busy, self._order[peer.node_id]


class FirstLook:
    """Whether more peers hold another state, once all have had the time to say what they hold.

    A download begins with the first holder that is heard of, who need not be one of the majority.
    """

    def __init__(
        self,
        candidates: Candidates,
        givers: Callable[[], Collection[NodeId]],
        clock: Clock,
        at_s: float,
    ) -> None:
        """Look once.

        Args:
            candidates: Of the state that is being downloaded.
            givers: Peers that have given parts of it, which proves that they hold it.
            clock: Tells when.
            at_s: Instant of the look, by that clock.
        """
        self._candidates = candidates
        self._givers = givers
        self._clock = clock
        self._at_s = at_s
        self._verdict: bool | None = None

    def __call__(self) -> bool:
        """Whether it was found to be outnumbered; False before the look. To be asked often."""
        if self._verdict is None and self._clock.monotonic() >= self._at_s:
            self._candidates.know(self._givers())
            num_holders, num_rivals = self._candidates.count()
            self._verdict = num_rivals > num_holders
        return bool(self._verdict)


class Rivals:
    """Whether a state is outdone: clearly more peers hold another one.

    Who has moved on from it counts as one of its holders, so that a slow download goes on.
    """

    def __init__(self, candidates: Candidates, clock: Clock) -> None:
        """Watch the holders of the candidates' state."""
        self._candidates = candidates
        self._clock = clock
        self._outdone_since: float | None = None

    def __call__(self) -> bool:
        """Whether it has been outdone for long enough; to be asked often."""
        num_holders, num_rivals = self._candidates.count()
        now = self._clock.monotonic()
        if num_rivals <= OUTDONE_FACTOR * num_holders or num_rivals - num_holders < OUTDONE_BY:
            self._outdone_since = None
            return False
        if self._outdone_since is None:
            self._outdone_since = now
        return now - self._outdone_since >= OUTDONE_S
