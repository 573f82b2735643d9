"""Answers probes that come as datagrams: at once, with no more bytes than came.

Refuses to know who asks; nothing is kept but how often each address did.
"""

from __future__ import annotations

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError
from neuroswarm.identity.sealing import OVERHEAD_BYTES, Sealer
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes

PROBES_PER_S = 5.0
BURST = 20.0
"""Probes that one address may send at once. An address may be spoofed: then its owner gets at
most so many small datagrams, and no answer to probes of its own for a while."""

_FIELDS_BYTES = 96
"""What an answer takes besides its padding, with the longest of numeric hosts."""


class Echo:
    """Whoever holds the swarm token can ask; the answer is never longer than the question."""

    def __init__(self, sealer: Sealer, clock: Clock) -> None:
        """Take what opens and seals, and what tells the time."""
        self._sealer = sealer
        self._clock = clock
        self._limit: TokenBuckets[str] = TokenBuckets(per_s=PROBES_PER_S, burst=BURST)

    def answer(self, data: bytes, source: Endpoint) -> bytes | None:
        """The sealed answer to a sealed probe; None if it gets none.

        Raises:
            BadSignature: it is no probe of this swarm.
            PeerError: it is malformed.
        """
        wanted = probes.open_probe(self._sealer, data)
        if not self._limit.allows(source.host, self._clock.monotonic()):
            return None
        room = len(data) - OVERHEAD_BYTES - _FIELDS_BYTES
        if room < 0:
            return None
        reply = probes.ProbeReply(self._clock.wall(), source)
        sealed = probes.seal_probe_reply(
            self._sealer, data, reply, num_bytes=min(wanted, room, limits.MAX_DATAGRAM_BYTES)
        )
        if len(sealed) > len(data):
            raise PeerError(f"probe too small to be answered: {len(data)} bytes")
        return sealed
