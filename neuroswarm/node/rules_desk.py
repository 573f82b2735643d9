"""Where the swarm's owner asks for the rules and brings amendments of them.

Whoever holds the token may ask; only the owner's signature changes anything. Refuses to know HTTP.
"""

from __future__ import annotations

import logging
from typing import Protocol

from neuroswarm.clock import Clock
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import PeerError
from neuroswarm.membership.token_buckets import TokenBuckets
from neuroswarm.wire.control import RulesReply, open_request, seal_reply
from neuroswarm.wire.sealed_calls import Sealing
from neuroswarm.wire.signed import Signed

logger = logging.getLogger(__name__)

REQUESTS_PER_S = 1.0
BURST = 20


class Governed(Protocol):
    """The round in progress, as far as the rules are concerned."""

    @property
    def state(self) -> OuterState | None:
        """The outer state held; None before there is one."""
        ...

    @property
    def swarm_id(self) -> bytes:
        """The swarm, 32 bytes."""
        ...

    def propose(self, signed: Signed) -> None:
        """Put a verified amendment to the ballot; PeerError says why it cannot be."""
        ...


class RulesDesk:
    """Answers sealed requests."""

    def __init__(self, governed: Governed, *, sealer: Sealing, clock: Clock) -> None:
        self._governed = governed
        self._sealer = sealer
        self._clock = clock
        self._limit: TokenBuckets[str] = TokenBuckets(per_s=REQUESTS_PER_S, burst=BURST)

    def handle(self, body: bytes, remote_host: str) -> bytes:
        """Answer one request.

        Args:
            body: Sealed request.
            remote_host: Address that it came from.

        Raises:
            BadSignature: sealed with another token, or a signature does not verify.
            ProtocolViolation: malformed or too large.
            PeerError: the address asks too often, or there is no state here yet.
        """
        if not self._limit.allows(remote_host, self._clock.monotonic()):
            raise PeerError(f"too many requests about rules from {remote_host}")
        amendment = open_request(self._sealer, body)
        state = self._governed.state
        if state is None:
            raise PeerError("this node holds no outer state yet: ask again later")
        is_taken, reason = False, ""
        if amendment is not None:
            try:
                self._governed.propose(amendment)
                is_taken = True
            except PeerError as error:
                reason = str(error)
                logger.warning("amendment from %s refused: %s", remote_host, error)
        reply = RulesReply(
            self._governed.swarm_id, state.rules.to_bytes(), state.round, is_taken, reason
        )
        return seal_reply(self._sealer, body, reply)
