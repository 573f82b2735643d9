"""How many inner steps a round has in a swarm of some size (REQUIREMENTS N2).

Refuses to know who asks: settings of a node and rules of a swarm are scaled alike.
"""

from __future__ import annotations

import math


def scale_inner_steps(base: int, lowest: int, highest: int, num_peers: int) -> int:
    """`base * (1 + log10(num_peers) / 3)` within the limits; `base` itself for one peer."""
    if num_peers <= 1:
        return base
    return max(lowest, min(highest, int(base * (1 + math.log10(num_peers) / 3))))
