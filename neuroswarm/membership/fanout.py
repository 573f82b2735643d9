"""How many peers a message is pushed to.

Refuses to know which ones.
"""

from __future__ import annotations

import math

MAX_FANOUT = 50


def fanout(num_known: int) -> int:
    """Peers to push a message to when `num_known` >= 0 peers are known; may exceed `num_known`.

    Three hops of this width reach every peer of a swarm of some thousands with high probability.

    Raises:
        ValueError: `num_known` is negative.
    """
    return min(math.isqrt(4 * num_known) + 3, MAX_FANOUT)
