"""The protocol versions of this swarm's peers: with whom this node talks, and who is told so.

Knows nothing of what differs between versions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from neuroswarm.errors import ConfigError
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.versions import agree, explain
from neuroswarm.values import NodeId

logger = logging.getLogger(__name__)

MAX_SHOWN = 64
"""Peers that are listed in `/status` and remembered as told of; each is one line."""


class PeerVersions:
    """Sorts peers by whether they speak a version of this node's; says once who does not."""

    def __init__(self, own: int) -> None:
        """Announce version `own`."""
        self.own = own
        self._told_of: set[NodeId] = set()
        self._has_told_of_span = False

    def speaks_with(self, peer: Peer) -> bool:
        """Whether this node and the peer speak a common version."""
        return agree(self.own, peer.heartbeat.protocol) is not None

    def of_ours(self, peers: Sequence[Peer]) -> list[Peer]:
        """Those that this node talks with."""
        ours = [peer for peer in peers if self.speaks_with(peer)]
        if len(ours) < len(peers):
            self._tell(self.of_others(peers))
        self._tell_of_span(ours)
        return ours

    def of_others(self, peers: Iterable[Peer]) -> list[Peer]:
        """Those that it does not talk with."""
        return [peer for peer in peers if not self.speaks_with(peer)]

    def lowest(self, peers: Iterable[Peer]) -> int:
        """The version that this node and all of `peers` know, all of them `of_ours`."""
        return min([self.own, *(peer.heartbeat.protocol for peer in peers)])

    def require(self, protocol: int) -> None:
        """ConfigError if a new swarm's rules need a later version than this node announces."""
        if protocol > self.own:
            raise ConfigError(
                f"these settings make rules of protocol {protocol}, and network.protocol_version "
                f"is {self.own}: raise it, or leave the newer settings at their former values"
            )

    def get_status(self, ours: Sequence[Peer], others: Sequence[Peer]) -> Mapping[str, object]:
        """The part of `/status` on versions, as JSON values."""
        counts = Counter(peer.heartbeat.protocol for peer in (*ours, *others))
        return {
            "announced": self.own,
            "spoken_by_all": self.lowest(ours),
            "peers": {str(version): counts[version] for version in sorted(counts)},
            "apart": [
                {
                    "node_id": peer.node_id.hex(),
                    "address": str(peer.address.endpoint),
                    "protocol": peer.heartbeat.protocol,
                    "reason": explain(self.own, peer.heartbeat.protocol),
                }
                for peer in others[:MAX_SHOWN]
            ],
        }

    def _tell(self, others: Iterable[Peer]) -> None:
        for peer in others:
            if peer.node_id in self._told_of or len(self._told_of) >= MAX_SHOWN:
                continue  # whoever says another version every time is told of once
            self._told_of.add(peer.node_id)
            logger.warning(
                "%s takes no part with this node: %s",
                peer.address,
                explain(self.own, peer.heartbeat.protocol),
            )

    def _tell_of_span(self, ours: Sequence[Peer]) -> None:
        versions = {peer.heartbeat.protocol for peer in ours}
        if self._has_told_of_span or not versions or max(versions) - min(versions) < 2:
            return
        self._has_told_of_span = True
        logger.warning(
            "peers speak protocols %d to %d, which do not talk with each other: upgrade the oldest",
            min(versions),
            max(versions),
        )
