"""What this node says in rounds: signed once, noted on disk, then spread.

Knows nothing of when something is to be said.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from neuroswarm.checkpoint.said import Said, SaidLog
from neuroswarm.errors import CheckpointError
from neuroswarm.wire import limits
from neuroswarm.wire.messages import Ballot, Confirm, Contribution, Ready, Skip
from neuroswarm.wire.signed import Kind, Signed, Signer, sign

logger = logging.getLogger(__name__)


class Spreader(Protocol):
    """Spreads signed statements."""

    def spread(self, signed: Signed, *, inline: bytes | None = None) -> None:
        """Push a statement to the fanout."""
        ...


class Voice:
    """Signs this node's statements about one round at a time.

    What was said about a round before a restart is said again, never something else: two
    contributions, ballots or confirms about one round would be a proof against this node.
    """

    def __init__(
        self, signer: Signer, swarm_id: bytes, log: SaidLog | None, spreader: Spreader
    ) -> None:
        """Wire up; without a log (a node without a state folder) nothing outlives a restart."""
        self._signer = signer
        self._swarm_id = swarm_id
        self._log = log
        self._spreader = spreader
        self._about: tuple[int, bytes] = (0, b"")
        self._said: dict[Kind, Said] = {}

    async def begin(self, round_: int, base_digest: bytes) -> dict[Kind, Said]:
        """Speak about this round from now on; returns what was said about it already."""
        self._about = (round_, base_digest)
        log = self._log
        self._said = {} if log is None else await asyncio.to_thread(log.recall, *self._about)
        return dict(self._said)

    def repeat(self) -> None:
        """Spread again what was said about this round, for peers that came in the middle of it."""
        for said in self._said.values():
            self.spread_contribution(said.signed, said.payload)

    def say_ready(self, inner_steps: int) -> None:
        """Spread that the inner steps are taken."""
        body = Ready(self._swarm_id, *self._about, inner_steps).encode()
        self._spreader.spread(sign(Kind.READY, body, self._signer))

    def say_skip(self, inner_steps: int) -> None:
        """Spread that this node publishes nothing in this round."""
        body = Skip(self._swarm_id, *self._about, inner_steps).encode()
        self._spreader.spread(sign(Kind.SKIP, body, self._signer))

    async def sign_contribution(self, header: Contribution, payload: bytes) -> Signed | None:
        """Sign a header and note it with its payload; None if the disk refuses."""
        return await self._commit_to(Kind.CONTRIBUTION, header.encode(), payload)

    def spread_contribution(self, signed: Signed, payload: bytes) -> None:
        """Spread a signed header, with its payload if that is small."""
        inline = payload if 0 < len(payload) <= limits.MAX_INLINE_BYTES else None
        self._spreader.spread(signed, inline=inline)

    async def say_ballot(self, contributions: tuple[bytes, ...]) -> Signed | None:
        """Spread which contributions are held whole; None if the disk refuses."""
        body = Ballot(self._swarm_id, *self._about, contributions).encode()
        return self._spread(await self._commit_to(Kind.BALLOT, body))

    async def say_confirm(self, contributions: tuple[bytes, ...]) -> Signed | None:
        """Spread which set is agreed; None if the disk refuses."""
        body = Confirm(self._swarm_id, *self._about, contributions).encode()
        return self._spread(await self._commit_to(Kind.CONFIRM, body))

    async def _commit_to(self, kind: Kind, body: bytes, payload: bytes = b"") -> Signed | None:
        known = self._said.get(kind)
        if known is not None:
            return known.signed
        said = Said(sign(kind, body, self._signer), payload)
        if self._log is not None:
            round_, base_digest = self._about
            try:
                await asyncio.to_thread(self._log.record, round_, base_digest, said)
            except CheckpointError as error:
                logger.warning("%s not sent: %s", kind.name.lower(), error)
                return None
        self._said[kind] = said
        return said.signed

    def _spread(self, signed: Signed | None) -> Signed | None:
        if signed is not None:
            self._spreader.spread(signed)
        return signed
