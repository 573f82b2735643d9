"""Which live peers take part in rounds by their heartbeats only, and say nothing in them.

Such a peer (its calls are blocked, or it is hostile) would be waited for in every round. Knows
what heartbeats and statements tell; refuses to know quorums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuroswarm.membership.peer import Peer
from neuroswarm.values import NodeId

RECENT_ROUNDS = 2
"""A peer that was heard in this round or in so many before it is not mute."""

STANDSTILL = 20
"""A peer whose heartbeats show no inner step gets this many times the patience: one step of a
large model on a small machine takes minutes."""


@dataclass(slots=True)
class _Quiet:
    inner_steps: int
    since: float


class Voices:
    """When each peer was last heard in a round."""

    def __init__(self, mute_after_s: float) -> None:
        """Start with nobody heard.

        Args:
            mute_after_s: Patience with a peer that must have something to say, seconds.
        """
        self._mute_after_s = mute_after_s
        self._spoke_in: dict[NodeId, int] = {}
        self._quiet: dict[NodeId, _Quiet] = {}

    def heard(self, signer: NodeId, round_: int) -> None:
        """A peer's statement about a round was taken."""
        self._spoke_in[signer] = max(round_, self._spoke_in.get(signer, 0))

    def is_mute(self, peer: Peer, round_: int, steps_wanted: int, now: float) -> bool:
        """Whether nobody should wait for a live training peer in that round.

        It is mute if it was not heard lately and, for the patience, its heartbeats say that it
        has the inner steps of a round (an honest peer would have said so), or, for much longer,
        that it takes none.
        """
        spoke_in = self._spoke_in.get(peer.node_id)
        if spoke_in is not None and spoke_in >= round_ - RECENT_ROUNDS:
            self._quiet.pop(peer.node_id, None)
            return False
        steps = peer.heartbeat.inner_steps
        quiet = self._quiet.get(peer.node_id)
        if quiet is None or (steps < steps_wanted and steps != quiet.inner_steps):
            self._quiet[peer.node_id] = _Quiet(steps, now)
            return False
        patience_s = self._mute_after_s * (1 if steps >= steps_wanted else STANDSTILL)
        return now - quiet.since >= patience_s

    def forget_all_but(self, known: Iterable[NodeId]) -> None:
        """Drop what is remembered of peers that are gone."""
        kept = set(known)
        self._spoke_in = {n: r for n, r in self._spoke_in.items() if n in kept}
        self._quiet = {n: q for n, q in self._quiet.items() if n in kept}
