"""How much is sent to endpoints that peers only announced, and that may be somebody else's.

A member may announce any host, and every node that hears it would send heartbeats there for ever.
Refuses to know who announced what.
"""

from __future__ import annotations

from neuroswarm.membership.addresses import group_of
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.values import Endpoint

BURST, PER_S = 2.0, 1.0 / 60.0
"""Datagrams to one endpoint: two, then one a minute; never more than 3 in any minute."""

GROUP_BURST, GROUP_PER_S = 60.0, 1.0
"""The same for all endpoints at one address, for a node behind each of its ports."""


class Restraint:
    """Counts what goes to unproven endpoints, for the 4,096 used last."""

    def __init__(self) -> None:
        self._endpoints: TokenBuckets[Endpoint] = TokenBuckets(per_s=PER_S, burst=BURST)
        self._groups: TokenBuckets[str] = TokenBuckets(per_s=GROUP_PER_S, burst=GROUP_BURST)

    def allows(self, endpoint: Endpoint, now: float) -> bool:
        """Whether one more datagram may go there at monotonic time `now`; counts it if so."""
        return self._endpoints.allows(endpoint, now) and self._groups.allows(
            group_of(endpoint.host), now
        )
