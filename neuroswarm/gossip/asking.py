"""Asks other members about rounds and checks what they answer: payloads, results, lineages.

Knows nothing of what is done with the answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from neuroswarm.config import RoundConfig
from neuroswarm.errors import (
    MessageTooLarge,
    PeerError,
    PeerUnreachable,
    ProtocolViolation,
    WrongPayload,
)
from neuroswarm.rounds.lineage import Claim, ClaimedRound, is_chain
from neuroswarm.transport import Rpc
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.values import HASH_BYTES, NodeId, PeerAddress
from neuroswarm.wire import limits
from neuroswarm.wire.chunks import receive_chunks
from neuroswarm.wire.messages import Confirm, Contribution, decode_confirm, parse
from neuroswarm.wire.signed import Kind, Signed, verify

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 5.0
QUICK_TIMEOUT_S = 1.5
NUM_QUICK = 2
"""Tries with that deadline before the last: lost messages, the commonest trouble, cost no more."""
_CONFIRMS = frozenset({Kind.CONFIRM})
_IN_SETS = frozenset({Kind.CONTRIBUTION, Kind.AMENDMENT})


@dataclass(frozen=True, slots=True)
class Result:
    """How a finished round ended, as another member tells it; every signature verified."""

    contributions: tuple[bytes, ...]
    confirms: tuple[Signed, ...]
    headers: tuple[Signed, ...]
    """Of contributions, and amendments."""
    next_digest: bytes


class Asker:
    """Calls to members about rounds."""

    def __init__(
        self, rpc: Rpc, cfg: RoundConfig, *, blame: Callable[[NodeId, PeerError], None]
    ) -> None:
        """Wire up.

        Args:
            rpc: Carries the calls.
            cfg: Deadlines.
            blame: Told of a peer that gave what it cannot have held.
        """
        self._rpc = rpc
        self._cfg = cfg
        self._blame = blame

    async def payload(
        self, contribution: bytes, header: Contribution, sources: Sequence[PeerAddress]
    ) -> bytes:
        """Pull a payload from the first source that gives it, resuming at the next one.

        Args:
            contribution: Its id.
            header: Its verified header: sizes and hashes.
            sources: Holders, best first.

        Returns:
            The coded bytes of all fragments in order, each checked against its hash.

        Raises:
            PeerUnreachable: no source gave the whole.
            ProtocolViolation: what came is not what the header promises.

        Cancellation: what was received is dropped.
        """
        received = bytearray()
        for source in sources:
            is_from_one = not received
            try:
                await self._receive(contribution, header.payload_bytes, source, received)
            except PeerError as error:
                logger.debug("payload %s from %s: %s", contribution.hex()[:8], source, error)
            if len(received) == header.payload_bytes:
                if is_payload_of(header, received):
                    return bytes(received)
                received.clear()
                if is_from_one:
                    self._blame(source.node_id, WrongPayload("not the payload asked for"))
        raise PeerUnreachable(
            f"payload {contribution.hex()[:8]} not to be had from {len(sources)} peers"
        )

    async def _receive(
        self, contribution: bytes, size: int, source: PeerAddress, received: bytearray
    ) -> None:
        request = gossip_pb2.PayloadRequest(contribution=contribution, offset=len(received))
        stream = self._rpc.stream(
            source,
            "Gossip/Payload",
            request.SerializeToString(),
            timeout_s=self._cfg.pull_timeout_s,
        )
        await receive_chunks(
            stream, received, size, source=source.node_id, stall_s=self._cfg.pull_stall_s
        )

    async def _ask(self, source: PeerAddress, method: str, request: bytes) -> bytes:
        for _ in range(NUM_QUICK):
            try:
                return await self._rpc.call(source, method, request, timeout_s=QUICK_TIMEOUT_S)
            except PeerUnreachable as error:
                logger.debug("%s of %s: %s", method, source, error)
        return await self._rpc.call(source, method, request, timeout_s=ASK_TIMEOUT_S)

    async def headers(
        self, contributions: Iterable[bytes], source: PeerAddress
    ) -> tuple[Signed, ...]:
        """Headers and amendments that were heard of by id only, verified; those known there."""
        wanted = tuple(contributions)[: limits.MAX_HEADERS]
        request = gossip_pb2.HeadersRequest(contributions=wanted).SerializeToString()
        data = await self._ask(source, "Gossip/Headers", request)
        reply = parse(gossip_pb2.HeadersReply, data)
        found = await _verified(reply.headers, _IN_SETS, limits.MAX_HEADERS)
        return tuple(header for header in found if header.id in wanted)

    async def result(self, round_: int, base_digest: bytes, source: PeerAddress) -> Result | None:
        """How a round on that base ended, or None if the peer does not know."""
        request = gossip_pb2.ResultRequest(round=round_, base_digest=base_digest)
        data = await self._ask(source, "Gossip/Result", request.SerializeToString())
        reply = parse(gossip_pb2.ResultReply, data)
        if not reply.is_known:
            return None
        confirms = await _verified(reply.confirms, _CONFIRMS, limits.MAX_SET)
        said = [decode_confirm(confirm.body) for confirm in confirms]
        if not said or any(_about(c) != _about(said[0]) for c in said):
            raise ProtocolViolation("confirms of different sets", peer=source.node_id)
        if (said[0].round, said[0].base_digest) != (round_, base_digest):
            raise ProtocolViolation("result of another round", peer=source.node_id)
        headers = await _verified(reply.headers, _IN_SETS, limits.MAX_SET)
        agreed = said[0].contributions
        return Result(
            agreed, confirms, tuple(h for h in headers if h.id in agreed), reply.next_digest
        )

    async def lineage(self, first_round: int, known_round: int, source: PeerAddress) -> Claim:
        """The peer's finished rounds from `first_round` on, the state it holds, and a digest.

        Args:
            first_round: First finished round wanted; 0 for all that are remembered.
            known_round: Round whose digest there is wanted besides, however long ago it was.
            source: The peer.
        """
        request = gossip_pb2.LineageRequest(first_round=first_round, known_round=known_round)
        data = await self._ask(source, "Gossip/Lineage", request.SerializeToString())
        reply = parse(gossip_pb2.LineageReply, data)
        if len(reply.rounds) > limits.MAX_LINEAGE_ROUNDS:
            raise MessageTooLarge(f"lineage too long: {len(reply.rounds)} rounds")
        if len(reply.digest) != HASH_BYTES:
            raise ProtocolViolation("no outer state there yet", peer=source.node_id)
        if sum(bool(shown.confirms) for shown in reply.rounds) > limits.MAX_SHOWN_ROUNDS:
            raise MessageTooLarge("a lineage that shows confirms of too many rounds")
        known = (known_round, reply.known_digest) if reply.known_digest else None
        rounds = [await _claimed_round(shown) for shown in reply.rounds]
        claim = Claim(reply.round, reply.digest, tuple(rounds), known)
        if not is_chain(claim):
            raise ProtocolViolation("rounds do not join end to end", peer=source.node_id)
        return claim


def is_payload_of(header: Contribution, payload: bytes | bytearray) -> bool:
    """Whether the bytes are exactly what the header promises, by size and hashes."""
    if len(payload) != header.payload_bytes:
        return False
    start, view = 0, memoryview(payload)
    for part in header.fragments:
        piece = view[start : start + part.payload_bytes]
        if hashlib.sha256(piece).digest() != part.payload_hash:
            return False
        start += part.payload_bytes
    return True


async def _claimed_round(message: gossip_pb2.LineageRound) -> ClaimedRound:
    base, after = message.base_digest, message.next_digest
    confirms = await _verified(message.confirms, _CONFIRMS, limits.MAX_SET)
    said = {confirm.signer: decode_confirm(confirm.body) for confirm in confirms}
    if not said:
        return ClaimedRound(message.round, base, after)
    if any((c.round, c.base_digest) != (message.round, base) for c in said.values()):
        raise ProtocolViolation("confirms of another round in a lineage")
    sets = {confirm.set_hash for confirm in said.values()}
    if len(sets) > 1:
        raise ProtocolViolation("confirms of different sets in a lineage")
    return ClaimedRound(message.round, base, after, frozenset(said), sets.pop())


async def _verified(
    messages: Sequence[envelope_pb2.Signed], kinds: Collection[Kind], limit: int
) -> tuple[Signed, ...]:
    """All statements of an answer, verified beside the event loop: 0.1 ms each."""
    if len(messages) > limit:
        raise MessageTooLarge(f"too many statements: {len(messages)} (limit {limit})")
    if not messages:
        return ()
    found = await asyncio.to_thread(lambda: tuple(verify(message) for message in messages))
    if any(signed.kind not in kinds for signed in found):
        wanted = " or ".join(sorted(kind.name.lower() for kind in kinds))
        raise ProtocolViolation(f"a statement that is no {wanted}")
    return found


def _about(confirm: Confirm) -> tuple[int, bytes, tuple[bytes, ...]]:
    return confirm.round, confirm.base_digest, confirm.contributions
