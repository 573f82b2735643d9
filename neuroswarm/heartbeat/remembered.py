"""Endpoints of peers that fell silent and were forgotten, tried now and then.

So a partition heals although both sides have given the other up. Knows nothing of records.
"""

from __future__ import annotations

from collections import OrderedDict

from neuroswarm.values import Endpoint, NodeId


class Remembered:
    """The `max_peers` peers that were forgotten last, each with its endpoint."""

    def __init__(self, max_peers: int) -> None:
        self._max_peers = max_peers
        self._endpoints: OrderedDict[NodeId, Endpoint] = OrderedDict()

    def __len__(self) -> int:
        return len(self._endpoints)

    def add(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """Remember a peer; at the bound the one whose turn is next is dropped."""
        self._endpoints[node_id] = endpoint
        if len(self._endpoints) > self._max_peers:
            self._endpoints.popitem(last=False)

    def discard(self, node_id: NodeId) -> None:
        """Stop trying a peer, if it was remembered."""
        self._endpoints.pop(node_id, None)

    def take_turn(self, count: int) -> list[Endpoint]:
        """The next endpoints to try, at most `count`; all get their turn before one gets two."""
        chosen = list(self._endpoints.items())[:count]
        for node_id, _ in chosen:
            self._endpoints.move_to_end(node_id)
        return [endpoint for _, endpoint in chosen]
