"""How many peers may be at one address, where anybody can make up identities.

Refuses to know who the peers are. What counts is where a peer was seen; one that is known by
hearsay only counts where it says to be, and gives way to one that was seen there, so that nobody
keeps an address' owner out by naming it.
"""

from __future__ import annotations

import logging

from neuroswarm.membership.addresses import group_of
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

OPEN_SWARM_QUOTA = 16
"""Peers at one IPv4 address or IPv6 /64 of a swarm without a token, unless told otherwise."""

_LINE_EVERY_S = 60.0


def choose_quota(asked: int | None, *, is_open: bool) -> int | None:
    """The quota asked for; without one 16 in an open swarm, and no limit (None) in others."""
    return asked if asked is not None or not is_open else OPEN_SWARM_QUOTA


class AddressQuota:
    """Places at each address; as large as the table whose peers hold them."""

    def __init__(self, max_per_address: int | None) -> None:
        """Take the quota, >= 1; None: as many as come."""
        self.max_per_address = max_per_address
        self.num_refused = 0
        """Records of peers that found no place at their address."""
        self._groups: dict[NodeId, str] = {}
        self._members: dict[str, dict[NodeId, bool]] = {}
        self._quiet_until = float("-inf")
        self._num_unsaid = 0

    def take(
        self, node_id: NodeId, host: str, now: float, *, is_seen: bool
    ) -> tuple[bool, NodeId | None]:
        """Give a peer a place at `host`, or move it there.

        Args:
            node_id: The peer.
            host: Where it was seen; where it says to be if it was not.
            now: Monotonic time.
            is_seen: Whether a message of its own came from there.

        Returns:
            Whether it has a place there now, and the peer that lost its place to it, if one did.
        """
        if self.max_per_address is None:
            return True, None
        group = group_of(host)
        members = self._members.get(group, {})
        loser = None
        if node_id not in members and len(members) >= self.max_per_address:
            loser = next((other for other, seen in members.items() if not seen), None)
            if not is_seen or loser is None:
                self._refuse(group, now)
                return False, None
            self.release(loser)
        if self._groups.get(node_id) != group:
            self.release(node_id)
            self._groups[node_id] = group
        members = self._members.setdefault(group, {})
        members[node_id] = members.get(node_id, False) or is_seen
        return True, loser

    def release(self, node_id: NodeId) -> None:
        """Free a peer's place, if it has one."""
        group = self._groups.pop(node_id, None)
        if group is None:
            return
        del self._members[group][node_id]
        if not self._members[group]:
            del self._members[group]

    def _refuse(self, group: str, now: float) -> None:
        self.num_refused += 1
        self._num_unsaid += 1
        if now < self._quiet_until:
            return
        self._quiet_until = now + _LINE_EVERY_S
        logger.warning(
            "more than %d peers at %s: %d refused since the last such line (use a swarm token, or "
            "raise network.max_peers_per_address)",
            self.max_per_address,
            group,
            self._num_unsaid,
        )
        self._num_unsaid = 0
