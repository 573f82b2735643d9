"""Peers that this node refuses, why, and until when.

Refuses to know what a peer did; whoever found out says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroswarm.values import NodeId


@dataclass(frozen=True, slots=True)
class Ban:
    """Why a peer is refused; `until` is an instant of the monotonic clock, None for good."""

    reason: str
    until: float | None

    def holds(self, now: float) -> bool:
        """Whether it still counts at `now`."""
        return self.until is None or now < self.until


class Bans:
    """At most `max_bans` refusals; beyond that the one that would end first is dropped."""

    def __init__(self, max_bans: int) -> None:
        self._max_bans = max_bans
        self._bans: dict[NodeId, Ban] = {}
        self.expelled: frozenset[NodeId] = frozenset()
        """Refused by the swarm's rules, for as long as those say so."""

    def add(self, node_id: NodeId, reason: str, until: float | None) -> None:
        """Refuse a peer; a longer refusal that stands already is kept."""
        known = self._bans.get(node_id)
        if known is not None and _end(known) >= _end(Ban(reason, until)):
            return
        self._bans[node_id] = Ban(reason, until)
        if len(self._bans) > self._max_bans:
            del self._bans[min(self._bans, key=lambda id_: (_end(self._bans[id_]), id_))]

    def holds(self, node_id: NodeId, now: float) -> bool:
        """Whether the peer is refused at `now`."""
        if node_id in self.expelled:
            return True
        ban = self._bans.get(node_id)
        return ban is not None and ban.holds(now)

    def is_for_good(self, node_id: NodeId) -> bool:
        """Whether the peer is refused without an end (the rules may readmit the expelled)."""
        ban = self._bans.get(node_id)
        return ban is not None and ban.until is None

    def current(self, now: float) -> Mapping[NodeId, Ban]:
        """The refusals that stand at `now`, by node id."""
        expelled = {node_id: Ban("expelled by the owner", None) for node_id in self.expelled}
        banned = {node_id: ban for node_id, ban in self._bans.items() if ban.holds(now)}
        return dict(sorted((expelled | banned).items()))

    def expire(self, now: float) -> None:
        """Drop what is over."""
        self._bans = {node_id: ban for node_id, ban in self._bans.items() if ban.holds(now)}


def _end(ban: Ban) -> float:
    return math.inf if ban.until is None else ban.until
