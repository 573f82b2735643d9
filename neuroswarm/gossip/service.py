"""Pushing and relaying statements: verified once, handed to the rounds, passed on for 3 hops.

Knows nothing of what follows from a statement, nor of how rounds end.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from neuroswarm.clock import Clock
from neuroswarm.errors import PeerError, PeerUnreachable
from neuroswarm.gossip.outbox import Outbox, Parcel
from neuroswarm.gossip.push import decode_push, encode_push
from neuroswarm.rounds import statements
from neuroswarm.rounds.spread import Seen, choose_targets, hops_after
from neuroswarm.rounds.statements import Proof, Statement
from neuroswarm.service import Service
from neuroswarm.transport import Rpc
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire import limits
from neuroswarm.wire.signed import Kind, Signed, peek_id, verify

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 5.0
RETRY_S = 0.2
KINDS = frozenset(map(int, Kind))


class Listener(Protocol):
    """Who decides what statements mean."""

    def on_statement(self, signed: Signed, statement: Statement, sender: NodeId) -> bool | Proof:
        """Take a verified statement.

        Returns:
            Whether it is worth relaying, or the proof if it convicts its signer.
        """
        ...

    def on_amendment(self, signed: Signed) -> bool:
        """Take a verified amendment, its owner unchecked; returns whether to relay it."""
        ...

    def on_inline(self, contribution: bytes, payload: bytes) -> None:
        """Take a payload that came with its header; not checked against it yet."""
        ...

    def on_proof(self, proof: Proof) -> bool:
        """Take a verified proof of equivocation; returns whether it was news."""
        ...


class Neighbours(Protocol):
    """The peers to push to, and what pushing tells of them."""

    def targets(self) -> Sequence[PeerAddress]:
        """Live peers of this swarm."""
        ...

    def answered(self, peer: NodeId, rtt_s: float) -> None:
        """A push was answered after that many seconds."""
        ...

    def failed(self, peer: NodeId) -> None:
        """A push was not answered."""
        ...

    def misbehaved(self, peer: NodeId, error: PeerError) -> None:
        """A peer brought what no honest one passes on, since each checks it before."""
        ...


class GossipService(Service):
    """Spreads this node's statements and relays those of others."""

    name = "gossip"

    def __init__(
        self, rpc: Rpc, *, listener: Listener, neighbours: Neighbours, clock: Clock, seed: int
    ) -> None:
        """Wire up; the transport must not have started.

        Args:
            rpc: Carries the pushes.
            listener: Takes every statement once.
            neighbours: Whom to push to.
            clock: For round trips and pauses.
            seed: Of the choice of targets.
        """
        super().__init__()
        self._rpc = rpc
        self._listener = listener
        self._neighbours = neighbours
        self._clock = clock
        self._rng = random.Random(seed)
        self._seen = Seen()
        self._outboxes: dict[NodeId, Outbox] = {}
        self.counters: Counter[str] = Counter()
        """Statements received, relayed, refused and dropped."""
        rpc.serve_unary("Gossip/Push", self._on_push)

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._outboxes.clear)

    def spread(self, signed: Signed, *, inline: bytes | None = None) -> None:
        """Push one of this node's own statements to the fanout.

        Args:
            signed: The statement.
            inline: Its payload, if it is at most `limits.MAX_INLINE_BYTES`.
        """
        self._seen.add(signed.id)
        self._post(Parcel(signed, limits.MAX_HOPS, inline), avoid=())

    def spread_proof(self, proof: Proof, *, avoid: Collection[NodeId] = ()) -> None:
        """Push a proof of equivocation to the fanout."""
        self._post(Parcel(proof), avoid={*avoid, proof.signer})

    async def _on_push(self, caller: NodeId, data: bytes) -> bytes:
        try:
            request = decode_push(data)
        except PeerError as error:
            self._neighbours.misbehaved(caller, error)
            raise
        for relayed in request.messages:
            self._guard(caller, self._take, relayed)
        for inline in request.inline:
            self._guard(caller, self._take_inline, inline)
        for proof in request.proofs:
            self._guard(caller, self._take_proof, proof)
        return gossip_pb2.PushReply().SerializeToString()

    def _guard(self, caller: NodeId, take: Callable[..., None], *args: object) -> None:
        """One bad statement in a push does not cost the others."""
        try:
            take(caller, *args)
        except PeerError as error:
            self.counters["refused"] += 1
            logger.debug("refused from %s: %s", caller, error)
            self._neighbours.misbehaved(caller, error)

    def _take(self, caller: NodeId, relayed: envelope_pb2.Relayed) -> None:
        if relayed.message.kind not in KINDS:
            self.counters["unknown_kind"] += 1  # of a later version, which is no misbehaviour
            return
        statement_id = peek_id(relayed.message)
        if statement_id in self._seen:
            self.counters["duplicates"] += 1
            return
        signed = verify(relayed.message)
        if signed.kind is Kind.AMENDMENT:
            self._take_amendment(caller, signed, relayed.hops_left)
            return
        statement = statements.decode(signed)
        self._seen.add(statement_id)
        self.counters["received"] += 1
        is_worth_relaying = self._listener.on_statement(signed, statement, caller)
        if isinstance(is_worth_relaying, Proof):
            self.spread_proof(is_worth_relaying, avoid={caller})
            return
        hops = hops_after(relayed.hops_left)
        if is_worth_relaying and hops is not None:
            self.counters["relayed"] += 1
            self._post(Parcel(signed, hops), avoid={caller, signed.signer})

    def _take_amendment(self, caller: NodeId, signed: Signed, hops_left: int) -> None:
        # Not noted as seen: one that comes too early, before the rules that it follows, is
        # judged anew when it comes again.
        hops = hops_after(hops_left)
        try:
            is_news = self._listener.on_amendment(signed)
        except PeerError as error:
            # A peer that is behind passes on what does not follow the rules here any more.
            self.counters["refused_amendments"] += 1
            logger.debug("amendment from %s refused: %s", caller, error)
            return
        if is_news and hops is not None:
            self._post(Parcel(signed, hops), avoid={caller})

    def _take_inline(self, _caller: NodeId, inline: gossip_pb2.InlinePayload) -> None:
        self._listener.on_inline(inline.contribution, inline.data)

    def _take_proof(self, caller: NodeId, message: gossip_pb2.EquivocationProof) -> None:
        key = peek_id(message.first) + peek_id(message.second)
        if key in self._seen:
            return
        proof = statements.check_proof(verify(message.first), verify(message.second))
        self._seen.add(key)
        if self._listener.on_proof(proof):
            self.spread_proof(proof, avoid={caller})

    def _post(self, parcel: Parcel, avoid: Iterable[NodeId]) -> None:
        for peer in choose_targets(self._neighbours.targets(), set(avoid), self._rng):
            outbox = self._outboxes.setdefault(peer.node_id, Outbox())
            outbox.put(Parcel(parcel.content, parcel.hops_left, parcel.inline))
            if not outbox.is_draining:
                outbox.is_draining = True
                self._spawn(self._drain(peer.node_id, outbox))

    async def _drain(self, node_id: NodeId, outbox: Outbox) -> None:
        try:
            while batch := outbox.take_batch():
                await self._push(node_id, outbox, batch)
        finally:
            outbox.is_draining = False
            self._outboxes.pop(node_id, None)

    async def _push(self, node_id: NodeId, outbox: Outbox, batch: list[Parcel]) -> None:
        peer = next((p for p in self._neighbours.targets() if p.node_id == node_id), None)
        if peer is None:
            self.counters["dropped"] += len(batch)
            return
        started_at = self._clock.monotonic()
        try:
            await self._rpc.call(peer, "Gossip/Push", encode_push(batch), timeout_s=PUSH_TIMEOUT_S)
        except PeerUnreachable as error:
            if error.peer is not None:  # else it is this node that cannot send now
                self._neighbours.failed(node_id)
            outbox.put_back(batch)
            await self._clock.sleep(RETRY_S)
        except PeerError as error:
            self.counters["dropped"] += len(batch)
            logger.debug("push refused by %s: %s", peer, error)
        else:
            self._neighbours.answered(node_id, self._clock.monotonic() - started_at)
