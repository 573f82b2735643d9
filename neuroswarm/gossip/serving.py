"""Answers what other members ask of rounds: headers, payloads, results, lineage.

Knows nothing of pushing; answers only from what this node holds.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Protocol

from neuroswarm.errors import CheckpointError, MessageTooLarge, ProtocolViolation
from neuroswarm.gossip.archive import Archive, PutAway
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.transport import Rpc
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import SIGNED_OVERHEAD_BYTES


class Records(Protocol):
    """What a node can tell of rounds."""

    @property
    def archive(self) -> Archive:
        """Recent contributions."""
        ...

    @property
    def history(self) -> History | None:
        """Finished rounds; None before the genesis."""
        ...


class RoundsServer:
    """The read-only half of the Gossip service."""

    def __init__(self, rpc: Rpc, records: Records) -> None:
        """Register the handlers; the transport must not have started."""
        self._records = records
        rpc.serve_unary("Gossip/Headers", self._on_headers)
        rpc.serve_stream("Gossip/Payload", self._on_payload)
        rpc.serve_unary("Gossip/Result", self._on_result)
        rpc.serve_unary("Gossip/Lineage", self._on_lineage)

    async def _on_headers(self, _caller: NodeId, data: bytes) -> bytes:
        request = parse(gossip_pb2.HeadersRequest, data)
        if len(request.contributions) > limits.MAX_HEADERS:
            raise MessageTooLarge(
                f"too many headers asked for: {len(request.contributions)} "
                f"(limit {limits.MAX_HEADERS})"
            )
        return gossip_pb2.HeadersReply(
            headers=self._headers(tuple(request.contributions))
        ).SerializeToString()

    def _headers(self, contributions: tuple[bytes, ...]) -> list[envelope_pb2.Signed]:
        """The known ones, as many as fit into an answer beside the confirms of one round."""
        known = map(self._records.archive.statement, contributions)
        found = [signed for signed in known if signed is not None]
        sizes = itertools.accumulate(len(s.body) + SIGNED_OVERHEAD_BYTES for s in found)
        fitting = sum(size <= limits.MAX_MESSAGE_BYTES // 2 for size in sizes)
        return [signed.to_proto() for signed in found[:fitting]]

    async def _on_payload(self, caller: NodeId, data: bytes) -> AsyncIterator[bytes]:
        request = parse(gossip_pb2.PayloadRequest, data)
        payload = self._records.archive.payload(request.contribution)
        if payload is None:
            raise ProtocolViolation("payload not held here")
        for start in range(request.offset, len(payload), limits.MAX_CHUNK_BYTES):
            piece = await _cut(payload, start, start + limits.MAX_CHUNK_BYTES)
            yield envelope_pb2.Chunk(data=piece).SerializeToString()
        entry = self._records.archive.get(request.contribution)
        if entry is not None:
            entry.given_to.add(caller)

    async def _on_result(self, _caller: NodeId, data: bytes) -> bytes:
        request = parse(gossip_pb2.ResultRequest, data)
        history = self._records.history
        found = None if history is None else history.find(request.round)
        if found is None or found.base_digest != request.base_digest or not self._has_all(found):
            return gossip_pb2.ResultReply(is_known=False).SerializeToString()
        return gossip_pb2.ResultReply(
            is_known=True,
            headers=self._headers(found.contributions),
            confirms=[confirm.to_proto() for confirm in found.confirms],
            next_digest=found.next_digest,
        ).SerializeToString()

    def _has_all(self, finished: FinishedRound) -> bool:
        """Whether a peer could replay the round from here; otherwise it must download a state."""
        archive = self._records.archive
        return bool(finished.confirms) and all(map(archive.is_whole, finished.contributions))

    async def _on_lineage(self, _caller: NodeId, data: bytes) -> bytes:
        request = parse(gossip_pb2.LineageRequest, data)
        history = self._records.history
        reply = gossip_pb2.LineageReply()
        if history is not None:
            reply.round, reply.digest = history.round, history.digest
            reply.known_digest = history.digest_at(request.known_round) or b""
            rounds = history.since(request.first_round)
            best = max(rounds, key=lambda finished: len(finished.confirms), default=None)
            # The first shows the fork, the best the key, the last the state to download.
            shown = (*rounds[:1], best, *rounds[-1:])
            for finished in rounds:
                confirms = finished.confirms if finished in shown else ()
                reply.rounds.append(
                    gossip_pb2.LineageRound(
                        round=finished.round,
                        base_digest=finished.base_digest,
                        next_digest=finished.next_digest,
                        confirms=[confirm.to_proto() for confirm in confirms],
                    )
                )
        return reply.SerializeToString()


async def _cut(payload: bytes | PutAway, start: int, end: int) -> bytes:
    if isinstance(payload, bytes):
        return payload[start:end]
    try:
        return await asyncio.to_thread(payload.read, start, end)
    except CheckpointError as error:
        raise ProtocolViolation(f"payload not held here any more: {error}") from error
