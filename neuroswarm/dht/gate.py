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

STRANGERS_PER_S, STRANGERS_BURST = 0.75 * MESSAGES_PER_S, 0.75 * MESSAGES_BURST
"""The part of these for whoever is no contact: a flood under invented names leaves the rest."""

SENDER_PER_S, SENDER_BURST = 50.0, 200.0
"""The same for each pair of a key that a message names and an address that it comes from."""

UNPROVEN_PER_S, UNPROVEN_BURST = 2.0, 40.0
"""Answers to an endpoint that is not a contact's: somebody may send under another's address."""

GROUP_PER_S, GROUP_BURST = 50.0, 600.0
"""The same for all endpoints at one address."""

PROBES_PER_S, PROBES_BURST = 1.0 / 30.0, 2.0
"""Questions to an endpoint that somebody only said to be at."""

MAX_PROVEN = 4096
"""Nodes remembered with the endpoint at which they answered; the oldest answer goes first."""

MAX_NONCES = 16384
"""Requests remembered, so that one that was overheard is answered once."""


class Gate:
    """Counts what is let in, for the 4,096 senders seen last."""

    def __init__(self, now: float) -> None:
        """Start with full allowances at monotonic time `now`."""
        self._all = TokenBucket(MESSAGES_PER_S, MESSAGES_BURST, MESSAGES_BURST, now)
        self._strangers = TokenBucket(STRANGERS_PER_S, STRANGERS_BURST, STRANGERS_BURST, now)
        self._senders: TokenBuckets[tuple[bytes, str]] = TokenBuckets(
            per_s=SENDER_PER_S, burst=SENDER_BURST
        )
        self._unproven: TokenBuckets[Endpoint] = TokenBuckets(
            per_s=UNPROVEN_PER_S, burst=UNPROVEN_BURST
        )
        self._groups: TokenBuckets[str] = TokenBuckets(per_s=GROUP_PER_S, burst=GROUP_BURST)
        self._probes: TokenBuckets[Endpoint] = TokenBuckets(per_s=PROBES_PER_S, burst=PROBES_BURST)
        self._proven: OrderedDict[tuple[NodeId, Endpoint], None] = OrderedDict()
        self._nonces: OrderedDict[tuple[NodeId, bytes], None] = OrderedDict()

    def admits(
        self, claimed_key: bytes, source: Endpoint, now: float, *, is_contact: bool = False
    ) -> bool:
        """Whether one more signature may be checked; counts it if so.

        Args:
            claimed_key: Whose it is said to be.
            source: Where it comes from.
            now: Monotonic, in seconds.
            is_contact: Whether that key's node is known to answer at that endpoint.
        """
        if not self._senders.allows((claimed_key, source.host), now):
            return False
        return (is_contact or self._strangers.take(1.0, now)) and self._all.take(1.0, now)

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

    def note_answer(self, node_id: NodeId, endpoint: Endpoint) -> None:
        """A node has answered a fresh question there: it may be asked there at any time."""
        self._proven[node_id, endpoint] = None
        self._proven.move_to_end((node_id, endpoint))
        if len(self._proven) > MAX_PROVEN:
            self._proven.popitem(last=False)

    def may_ask(self, node_id: NodeId, endpoint: Endpoint, now: float) -> bool:
        """Whether a node may be asked where others say that it is; counts it if it never answered.

        Whoever answers a lookup names endpoints by the dozen, and keys to sign them cost nothing:
        unbounded, every lookup would send a stranger what it never asked for.
        """
        return (node_id, endpoint) in self._proven or self.may_probe(endpoint, now)

    def may_probe(self, endpoint: Endpoint, now: float) -> bool:
        """Whether an endpoint that was only named may be asked; counts it if so."""
        return self._probes.allows(endpoint, now) and self._groups.allows(
            group_of(endpoint.host), now
        )
