"""How often each address may ask.

Refuses to know what it asks for.
"""

from __future__ import annotations

from collections import OrderedDict


class RateLimit:
    """A token bucket for each address, for the `max_addresses` that asked last."""

    def __init__(self, *, per_s: float, burst: int, max_addresses: int = 1024) -> None:
        """Allow `burst` requests at once and `per_s` a second on end."""
        self._per_s = per_s
        self._burst = burst
        self._max_addresses = max_addresses
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str, now: float) -> bool:
        """Whether one more request at monotonic time `now` is within the limit; counts it if so."""
        level, since = self._buckets.pop(address, (float(self._burst), now))
        level = min(float(self._burst), level + (now - since) * self._per_s)
        is_allowed = level >= 1.0
        self._buckets[address] = (level - 1.0 if is_allowed else level, now)
        if len(self._buckets) > self._max_addresses:
            self._buckets.popitem(last=False)
        return is_allowed
