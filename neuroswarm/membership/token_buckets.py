"""How much each of many may take: a token bucket for each key.

Refuses to know what is counted and what a key is; one that is no proven identity (a source
address) can be spoofed, and then a limit on it is a way to hurt whoever has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

DEFAULT_MAX_KEYS = 4096


@dataclass(slots=True)
class TokenBucket:
    """Fills at `per_s` up to `burst`; what is taken must be there. Starts full."""

    per_s: float
    burst: float
    level: float
    since: float

    def take(self, amount: float, now: float) -> bool:
        """Whether `amount` is there at monotonic time `now`; takes it if so, else nothing."""
        self.level = min(self.burst, self.level + max(0.0, now - self.since) * self.per_s)
        self.since = now
        if amount > self.level:
            return False
        self.level -= amount
        return True


class TokenBuckets(Generic[K]):
    """A bucket for each key, for the `max_keys` that took last; a forgotten one is full again."""

    def __init__(self, *, per_s: float, burst: float, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        """Allow each key `burst` at once and `per_s` a second on end."""
        self._per_s = per_s
        self._burst = burst
        self._max_keys = max_keys
        self._buckets: OrderedDict[K, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def allows(self, key: K, now: float, amount: float = 1.0) -> bool:
        """Whether `amount` more at monotonic time `now` is within the limit; counts it if so."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._per_s, self._burst, self._burst, now)
            if len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket.take(amount, now)
