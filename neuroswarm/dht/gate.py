"""How much of what arrives is taken: before a signature is checked, and before it is answered.

Refuses to know what is in a message. Source addresses can be spoofed, so nobody is blamed here.
"""

from __future__ import annotations

from collections import OrderedDict

from neuroswarm.membership.addresses import group_of
from neuroswarm.membership.token_buckets import TokenBucket, TokenBuckets
from neuroswarm.values import Endpoint, NodeId

MESSAGES_PER_S, MESSAGES_BURST = 500.0, 1000.0
"""Signatures checked in all; one takes 0.1 ms here and 1 to 2 ms on a Raspberry Pi 4."""

SENDER_PER_S, SENDER_BURST = 50.0, 200.0
"""The same for each pair of a key that a message names and an address that it comes from."""

UNPROVEN_PER_S, UNPROVEN_BURST = 2.0, 40.0
"""Answers to an endpoint that is not a contact's: somebody may send under another's address."""

GROUP_PER_S, GROUP_BURST = 50.0, 600.0
"""The same for all endpoints at one address."""

PROBES_PER_S, PROBES_BURST = 1.0 / 30.0, 2.0
"""Questions to an endpoint that somebody only said to be at."""

MAX_NONCES = 16384
"""Requests remembered, so that one that was overheard is answered once."""


class Gate:
    """Counts what is let in, for the 4,096 senders seen last."""

    def __init__(self, now: float) -> None:
        """Start with full allowances at monotonic time `now`."""
        self._all = TokenBucket(MESSAGES_PER_S, MESSAGES_BURST, MESSAGES_BURST, now)
        self._senders: TokenBuckets[tuple[bytes, str]] = TokenBuckets(
            per_s=SENDER_PER_S, burst=SENDER_BURST
        )
        self._unproven: TokenBuckets[Endpoint] = TokenBuckets(
            per_s=UNPROVEN_PER_S, burst=UNPROVEN_BURST
        )
        self._groups: TokenBuckets[str] = TokenBuckets(per_s=GROUP_PER_S, burst=GROUP_BURST)
        self._probes: TokenBuckets[Endpoint] = TokenBuckets(per_s=PROBES_PER_S, burst=PROBES_BURST)
        self._nonces: OrderedDict[tuple[NodeId, bytes], None] = OrderedDict()

    def admits(self, claimed_key: bytes, source: Endpoint, now: float) -> bool:
        """Whether one more signature may be checked; counts it if so."""
        return self._senders.allows((claimed_key, source.host), now) and self._all.take(1.0, now)

    def is_fresh(self, signer: NodeId, nonce: bytes) -> bool:
        """Whether a verified request was not taken before; remembers it."""
        name = (signer, nonce)
        if name in self._nonces:
            return False
        self._nonces[name] = None
        if len(self._nonces) > MAX_NONCES:
            self._nonces.popitem(last=False)
        return True

    def may_answer(self, source: Endpoint, now: float) -> bool:
        """Whether an answer may go to an endpoint that is not a contact's; counts it if so."""
        return self._unproven.allows(source, now) and self._groups.allows(
            group_of(source.host), now
        )

    def may_probe(self, endpoint: Endpoint, now: float) -> bool:
        """Whether an endpoint that was only named may be asked; counts it if so."""
        return self._probes.allows(endpoint, now) and self._groups.allows(
            group_of(endpoint.host), now
        )
