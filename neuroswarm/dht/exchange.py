"""Questions to other nodes and the matching of their answers, over datagrams that may be lost.

Refuses to know what is asked, and what follows from silence.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.dht.gate import Gate
from neuroswarm.errors import PeerUnreachable
from neuroswarm.transport import Datagrams
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.dht_messages import (
    NONCE_BYTES,
    Answer,
    Question,
    Request,
    Store,
)
from neuroswarm.wire.signed import Kind, Signed, Signer, sign

NUM_SENDS = 4
"""How often a question is sent until there is an answer, evenly over its time."""

MAX_IN_FLIGHT = 64
"""Questions without an answer yet; further ones wait for their turn."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and who gave it."""

    node_id: NodeId
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Pending:
    receiver: NodeId | None
    reply: asyncio.Future[Reply]


class Exchange:
    """Asks, with a fresh nonce each time that a question is sent.

    An answer counts if it is signed by who was asked and names a nonce sent to it: an old answer,
    or one of somebody else, answers nothing.
    """

    def __init__(
        self,
        datagrams: Datagrams,
        signer: Signer,
        *,
        timeout_s: float,
        own_contact: Callable[[], Signed | None],
        gate: Gate,
        clock: Clock,
    ) -> None:
        """Wire it up; `timeout_s` is what one question may take in all, > 0."""
        self._datagrams = datagrams
        self._signer = signer
        self._timeout_s = timeout_s
        self._own_contact = own_contact
        self._gate, self._clock = gate, clock
        self._me = NodeId.of_key(signer.public_key)
        self._pending: dict[bytes, _Pending] = {}
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self.num_asked = 0
        self.num_unanswered = 0

    def may_ask(self, node_id: NodeId, endpoint: Endpoint) -> bool:
        """Whether a node may be asked now where others say that it is; counts it if so."""
        return self._gate.may_ask(node_id, endpoint, self._clock.monotonic())

    async def ask(self, to: Endpoint, receiver: NodeId | None, question: Question) -> Reply:
        """Ask the node at an endpoint.

        Args:
            to: Where it takes DHT datagrams.
            receiver: Who it is; None takes an answer of any node but this one.
            question: What to ask.

        Raises:
            PeerUnreachable: no answer within `timeout_s`.

        Cancellation: the question is forgotten; a late answer is dropped.
        """
        async with self._slots:
            pending = _Pending(receiver, asyncio.get_running_loop().create_future())
            nonces: list[bytes] = []
            self.num_asked += 1
            try:
                for _ in range(NUM_SENDS):
                    nonces.append(secrets.token_bytes(NONCE_BYTES))
                    self._pending[nonces[-1]] = pending
                    self._send(to, nonces[-1], receiver, question)
                    await asyncio.wait({pending.reply}, timeout=self._timeout_s / NUM_SENDS)
                    if pending.reply.done():
                        reply = pending.reply.result()
                        self._gate.note_answer(reply.node_id, to)
                        return reply
            finally:
                for nonce in nonces:
                    del self._pending[nonce]
        self.num_unanswered += 1
        raise PeerUnreachable(f"no answer from {to} in {self._timeout_s:g} s", peer=receiver)

    def take(self, answerer: NodeId, answer: Answer) -> bool:
        """Take a verified answer; returns whether it was asked for."""
        pending = self._pending.get(answer.nonce)
        if pending is None or answerer == self._me or pending.receiver not in (None, answerer):
            return False
        if not pending.reply.done():
            pending.reply.set_result(Reply(answerer, answer))
        return True

    def _send(
        self, to: Endpoint, nonce: bytes, receiver: NodeId | None, question: Question
    ) -> None:
        # A record leaves no room for the contact, which the asker has shown before in any case.
        own = None if isinstance(question, Store) else self._own_contact()
        contact = None if own is None else own.to_proto()
        request = Request(nonce, receiver, contact, question)
        signed = sign(Kind.DHT_REQUEST, request.encode(), self._signer)
        self._datagrams.send(to, signed.to_proto().SerializeToString())
