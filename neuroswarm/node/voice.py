"""What this node says in rounds: signed once, noted on disk, then spread.

Knows nothing of when something is to be said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from neuroswarm.checkpoint.complaint import Complaint
from neuroswarm.checkpoint.said import Recollection, Said, SaidLog
from neuroswarm.errors import CheckpointError, PeerError
from neuroswarm.gossip.asking import is_payload_of
from neuroswarm.rounds.statements import Proof
from neuroswarm.v1 import gossip_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.messages import (
    Ballot,
    Confirm,
    Contribution,
    Ready,
    Seal,
    Skip,
    decode_contribution,
    parse,
)
from neuroswarm.wire.signed import Kind, Signed, Signer, sign, verify

logger = logging.getLogger(__name__)


class Spreader(Protocol):
    """Spreads signed statements."""

    def spread(self, signed: Signed, *, inline: bytes | None = None) -> None:
        """Push a statement to the fanout."""
        ...

    def spread_proof(self, proof: Proof) -> None:
        """Push a proof of equivocation to the fanout."""
        ...


class Voice:
    """Signs this node's statements about one round at a time.

    What was said about a round before a restart is said again, never something else: two
    contributions, ballots or confirms about one round would be a proof against this node.
    """

    def __init__(
        self,
        signer: Signer,
        swarm_id: bytes,
        log: SaidLog | None,
        spreader: Spreader,
        *,
        is_mute: Callable[[], bool] = lambda: False,
        max_inline_bytes: int = limits.MAX_INLINE_BYTES,
    ) -> None:
        """Wire up.

        Args:
            signer: Holds the node's key.
            swarm_id: What all statements are about, 32 bytes.
            log: Notes what is signed; without one nothing outlives a restart.
            spreader: Spreads it.
            is_mute: Whether nothing may be said any more: another node has this one's key.
            max_inline_bytes: Payload that travels with its header; larger ones are pulled.
        """
        self._max_inline_bytes = min(max_inline_bytes, limits.MAX_INLINE_BYTES)
        self._is_mute = is_mute
        self._signer = signer
        self._swarm_id = swarm_id
        self._log = log
        self._spreader = spreader
        self._complaint = Complaint(logger, "nothing is published till it works; training goes on")
        self._about: tuple[int, bytes] = (0, b"")
        self._said: dict[Kind, Said] = {}
        self._lost: frozenset[Kind] = frozenset()
        self._spoken: dict[Kind, Signed] = {}
        self._is_revealed = False

    async def begin(self, round_: int, base_digest: bytes) -> dict[Kind, Said]:
        """Speak about this round from now on; returns what was said about it already.

        Of a kind that was signed, but of which it is not known any more what it said, nothing
        is signed in this round.
        """
        self._about = (round_, base_digest)
        self._spoken, self._is_revealed = {}, False
        found = await self._recall()
        own = {k: said for k, said in found.said.items() if self._is_own(said)}
        self._said = {kind: said for kind, said in own.items() if _is_whole(said)}
        self._lost = found.lost | (own.keys() - self._said.keys())
        if self._lost:
            kinds = ", ".join(sorted(kind.name.lower() for kind in self._lost))
            logger.warning("round %d: signed before, and lost: %s; not signed again", round_, kinds)
        return dict(self._said)

    def is_lost(self, kind: Kind) -> bool:
        """Whether nothing of that kind is signed in this round."""
        return kind in self._lost

    def lose(self, kind: Kind) -> None:
        """What was said of a kind cannot be taken up: nothing of it is signed in this round."""
        self._said.pop(kind, None)
        self._lost |= {kind}

    async def _recall(self) -> Recollection:
        if self._log is None:
            return Recollection()
        try:
            return await asyncio.to_thread(self._log.recall, *self._about)
        except CheckpointError as error:
            logger.warning("%s", error)
            return Recollection(lost=frozenset(Kind))

    def _is_own(self, said: Said) -> bool:
        """Whether this node said it; the folder may have had another key before."""
        return said.signed.public_key == self._signer.public_key

    def repeat(self, *, with_payload: bool) -> None:
        """Spread again what was said about this round, for peers that missed it.

        Args:
            with_payload: Whether a small payload that is revealed travels along: for peers that
                came in the middle of the round. Others pull it, if they miss it.
        """
        if self._is_mute():
            return
        for said in self._said.values():
            self._spread_whole(said, with_payload=with_payload)
        for signed in self._spoken.values():
            self._spread(signed)

    def pass_on(self, amendments: Iterable[Signed], proofs: Iterable[Proof]) -> None:
        """Spread what others have signed, for peers that came later."""
        for amendment in amendments:
            self._spreader.spread(amendment)
        for proof in proofs:
            self._spreader.spread_proof(proof)

    def say_ready(self, inner_steps: int) -> None:
        """Spread that the inner steps are taken."""
        body = Ready(self._swarm_id, *self._about, inner_steps).encode()
        self._speak(sign(Kind.READY, body, self._signer))

    def say_skip(self, inner_steps: int) -> None:
        """Spread that this node publishes nothing in this round."""
        body = Skip(self._swarm_id, *self._about, inner_steps).encode()
        self._speak(sign(Kind.SKIP, body, self._signer))

    async def sign_contribution(self, header: Contribution, payload: bytes) -> Signed | None:
        """Sign a header and note it with its payload; None if the disk refuses, or it is lost."""
        return await self._commit_to(Kind.CONTRIBUTION, header.encode(), payload)

    def spread_contribution(self, signed: Signed) -> None:
        """Spread a signed header, without its payload: nobody may have that yet."""
        self._spread(signed)

    def say_seal(self) -> None:
        """Spread that no further contribution is taken."""
        body = Seal(self._swarm_id, *self._about).encode()
        self._speak(sign(Kind.SEAL, body, self._signer))

    def reveal(self) -> None:
        """Spread the payload of what was published in this round, if there is any and it is small.

        Large ones are pulled.
        """
        self._is_revealed = True
        said = self._said.get(Kind.CONTRIBUTION)
        if said is not None and not self._is_mute():
            self._spread_whole(said, with_payload=True)

    def _speak(self, signed: Signed) -> None:
        """Say what needs no note on disk: said anew after a restart, it may differ."""
        self._spoken[signed.kind] = signed
        self._spread(signed)

    def _spread_whole(self, said: Said, *, with_payload: bool) -> None:
        is_small = 0 < len(said.payload) <= self._max_inline_bytes
        is_payload = said.signed.kind is Kind.CONTRIBUTION and is_small
        inline = said.payload if is_payload and self._is_revealed and with_payload else None
        self._spreader.spread(said.signed, inline=inline)

    async def say_ballot(
        self, contributions: tuple[bytes, ...], amendments: Iterable[Signed] = ()
    ) -> Signed | None:
        """Spread which contributions are held whole; None if the disk refuses.

        The amendments among them are noted too: after a restart there may be nobody to ask.
        """
        body = Ballot(self._swarm_id, *self._about, contributions).encode()
        noted = pack_statements(amendments)
        return self._spread(await self._commit_to(Kind.BALLOT, body, noted))

    async def say_confirm(
        self, contributions: tuple[bytes, ...], amendments: Iterable[Signed] = ()
    ) -> Signed | None:
        """Spread which set is agreed; None if the disk refuses. Amendments as in a ballot."""
        body = Confirm(self._swarm_id, *self._about, contributions).encode()
        noted = pack_statements(amendments)
        return self._spread(await self._commit_to(Kind.CONFIRM, body, noted))

    async def _commit_to(self, kind: Kind, body: bytes, payload: bytes = b"") -> Signed | None:
        if self._is_mute():
            return None
        known = self._said.get(kind)
        if known is not None:
            return known.signed
        if kind in self._lost:
            return None
        said = Said(sign(kind, body, self._signer), payload)
        if self._log is not None:
            round_, base_digest = self._about
            try:
                await asyncio.to_thread(self._log.record, round_, base_digest, said)
            except CheckpointError as error:
                self._complaint.failed(error, 0.0)
                return None
            self._complaint.worked("noting what is signed")
        self._said[kind] = said
        return said.signed

    def _spread(self, signed: Signed | None) -> Signed | None:
        if signed is not None and not self._is_mute():
            self._spreader.spread(signed)
        return signed


def pack_statements(statements: Iterable[Signed]) -> bytes:
    """Statements as bytes, to be noted beside one that names them; empty for none."""
    protos = [signed.to_proto() for signed in statements]
    return gossip_pb2.HeadersReply(headers=protos).SerializeToString()


def unpack_statements(data: bytes) -> list[Signed]:
    """What `pack_statements` made, verified; PeerError if it is damaged."""
    return [verify(message) for message in parse(gossip_pb2.HeadersReply, data).headers]


def _is_whole(said: Said) -> bool:
    if said.signed.kind is not Kind.CONTRIBUTION:
        return True
    try:
        return is_payload_of(decode_contribution(said.signed.body), said.payload)
    except PeerError:
        return False
