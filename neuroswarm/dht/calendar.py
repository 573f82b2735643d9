"""What time it is in the swarm, by the answers of distinct nodes in the DHT.

A node that knows nobody yet may have a clock that is wrong by years, and would find every record
over. Refuses to know who is right: the median is, as long as fewer than half of the nodes lie.
"""

from __future__ import annotations

from collections import OrderedDict

from neuroswarm.clock import Clock
from neuroswarm.membership.swarm_time import median_offset, swarm_time
from neuroswarm.values import NodeId

MAX_WITNESSES = 64
"""Nodes whose clocks count: those that answered last."""


class Calendar:
    """Swarm time, from this machine's clock and those of the nodes that answered last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offsets: OrderedDict[NodeId, float] = OrderedDict()

    def note(self, node_id: NodeId, time: float) -> None:
        """Take what an answer that was just asked for says the time is, seconds since 1970."""
        self._offsets[node_id] = time - self._clock.wall()
        self._offsets.move_to_end(node_id)
        if len(self._offsets) > MAX_WITNESSES:
            self._offsets.popitem(last=False)

    def now(self) -> float:
        """Seconds since 1970 by the swarm's clocks."""
        return swarm_time(self._clock.wall(), median_offset(self._offsets.values()))
