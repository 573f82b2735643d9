"""The node's part in the DHT: answers others, keeps its routing table fresh, publishes, looks up.

Refuses to know what is published and what follows from what is found.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from neuroswarm.clock import Clock
from neuroswarm.config import DhtConfig
from neuroswarm.dht.answering import Answerer, Kept
from neuroswarm.dht.calendar import Calendar
from neuroswarm.dht.contacts import ContactReader, OwnContact, ReadContact
from neuroswarm.dht.exchange import Exchange
from neuroswarm.dht.gate import Gate
from neuroswarm.dht.lookup import Found, Searcher
from neuroswarm.dht.publishing import Publisher
from neuroswarm.dht.record_store import RecordStore
from neuroswarm.dht.routing import RoutingTable
from neuroswarm.errors import (
    BadSignature,
    MessageTooLarge,
    PeerError,
    PeerUnreachable,
    SchemaMismatch,
)
from neuroswarm.membership.conduct import Offence
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.service import Service
from neuroswarm.transport import Datagrams
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId
from neuroswarm.wire.dht_messages import Ping, decode_answer, decode_request
from neuroswarm.wire.dht_records import DhtRecord
from neuroswarm.wire.messages import parse
from neuroswarm.wire.signed import PUBLIC_KEY_BYTES, Kind, Signed, Signer, sign, verify

logger = logging.getLogger(__name__)

ALONE_S = 5.0
"""Seconds between two rounds of asking seeds while no contact is known."""

NUM_PROBERS = 4
MAX_PROBES = 64
"""Newcomers that wait to be asked at the endpoint that they name; further ones come again."""

MAX_ASKED_AT_ONCE = 8
"""Seeds, and silent contacts, asked in one round of tending."""

_JITTER = 0.1
_REASONS: Mapping[type[PeerError], str] = {
    BadSignature: "bad_signature",
    MessageTooLarge: "too_large",
}


class DhtService(Service):
    """Kademlia with signed, expiring, versioned records of several publishers under one key.

    The transport must be running while this service runs. Nothing that it finds is to be trusted
    further than that its publisher has signed it.
    """

    name = "dht"

    def __init__(
        self,
        config: DhtConfig,
        *,
        datagrams: Datagrams,
        signer: Signer,
        peers: PeerTable,
        locate: Callable[[], Endpoint],
        clock: Clock,
    ) -> None:
        """Wire it up; before the transport starts.

        Args:
            config: Seeds, times.
            datagrams: Carries sealed datagrams of the DHT alone; this service takes all of them.
            signer: Holds the node's key.
            peers: Knows who is banned; told who misbehaves.
            locate: Where others reach this node's DHT port, as it is announced now.
            clock: Tells the time and waits.
        """
        super().__init__()
        me = NodeId.of_key(signer.public_key)
        self._config, self._datagrams, self._signer = config, datagrams, signer
        self._peers, self._clock = peers, clock
        self._seeds: Callable[[], Iterable[Endpoint]] = tuple
        self._calendar = Calendar(clock)
        own = OwnContact(signer, locate)
        table = RoutingTable(me, max_per_address=peers.quota.max_per_address)
        self._kept = Kept(table, RecordStore(), own)
        self._contacts = ContactReader()
        self._answerer = Answerer(self._kept, clock=clock, swarm_now=self._calendar.now)
        self._gate = Gate(clock.monotonic())
        self._exchange = Exchange(
            datagrams, signer, timeout_s=config.timeout_s,
            own_contact=lambda: own.get(self._calendar.now()), gate=self._gate, clock=clock,
        )  # fmt: skip
        self._searcher = Searcher(
            self._exchange, self._kept, self._contacts,
            clock=clock, swarm_now=self._calendar.now, blame=self._blame,
        )  # fmt: skip
        self._publisher = Publisher(
            signer, self._exchange, self._searcher, self._kept.records,
            ttl_s=config.record_ttl_s, swarm_now=self._calendar.now,
        )  # fmt: skip
        self._probes: asyncio.Queue[ReadContact] = asyncio.Queue(MAX_PROBES)
        self._probing: set[NodeId] = set()
        self._random = random.Random(me)
        self._met_someone = asyncio.Event()
        self._dropped: Counter[str] = Counter()
        self._is_open = False
        self.num_answered = 0
        """Requests answered."""
        datagrams.on_datagram(self._take)

    # -- for its users ---------------------------------------------------------------

    @property
    def table(self) -> RoutingTable:
        """The contacts known."""
        return self._kept.table

    @property
    def records(self) -> RecordStore:
        """The records kept for others and for itself."""
        return self._kept.records

    @property
    def dropped(self) -> Mapping[str, int]:
        """Datagrams that were of no use, by reason.

        Reasons: `malformed`, `too_large`, `bad_signature`, `banned`, `flood`, `own`, `replayed`,
        `not_for_us`, `unproven`, `unasked`.
        """
        return dict(self._dropped)

    @property
    def is_client(self) -> bool:
        """Whether this node, which others cannot reach, keeps and answers nothing for them."""
        return self._kept.own.is_client

    @is_client.setter
    def is_client(self, is_client: bool) -> None:
        self._kept.own.is_client = is_client

    def seed_from(self, seeds: Callable[[], Iterable[Endpoint]]) -> None:
        """Have endpoints of nodes in the DHT asked for, besides those of the settings."""
        self._seeds = seeds

    async def wait_for_contact(self) -> None:
        """Return once some node has answered."""
        await self._met_someone.wait()

    async def publish(self, draft: DhtRecord) -> int:
        """Have a record of this node kept until its end; returns how many others keep it.

        Raises:
            MessageTooLarge: the record does not fit into a datagram.
        """
        return await self._publisher.publish(draft)

    async def withdraw(self) -> int:
        """Replace all records published by ones that say that this node is gone."""
        return await self._publisher.withdraw()

    async def lookup(self, key: bytes) -> dict[NodeId, DhtRecord]:
        """The newest record of every publisher under a key, verified and not over.

        Publishers that have withdrawn theirs are left out; this node's own is among them.
        """
        return {
            signer: found.record
            for signer, found in (await self.lookup_signed(key)).items()
            if not found.record.is_withdrawn
        }

    async def lookup_signed(self, key: bytes) -> dict[NodeId, Found]:
        """The same with the statements, withdrawn ones included."""
        return await self._searcher.collect(key, await self._searcher.walk(key))

    def get_status(self) -> dict[str, object]:
        """What `/status` shows."""
        return {
            "contacts": len(self._kept.table),
            "records": len(self._kept.records),
            "keys": self._kept.records.num_keys,
            "records_refused": dict(self._kept.records.num_refused),
            "is_client": self.is_client,
            "requests_answered": self.num_answered,
            "questions_asked": self._exchange.num_asked,
            "questions_unanswered": self._exchange.num_unanswered,
            "datagrams_received": self._datagrams.num_received,
            "datagrams_unopened": self._datagrams.num_dropped,
            "dropped": self.dropped,
        }

    # -- its own life ----------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack) -> None:
        self._is_open = True
        stack.callback(self._close)

    def _close(self) -> None:
        self._is_open = False

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._tend(), *(self._probe_newcomers() for _ in range(NUM_PROBERS)))

    async def _tend(self) -> None:
        """Keep the table fresh: seeds, silent contacts, the neighbourhood, a random region."""
        while True:
            self._forget()
            await self._ask_seeds()
            await self._ask_silent()
            if len(self._kept.table):
                await self._searcher.walk(self._kept.table.me)
                await self._searcher.walk(self._random.randbytes(NODE_ID_BYTES))
            wait_s = self._config.refresh_s
            wait_s = wait_s if len(self._kept.table) else min(wait_s, ALONE_S)
            await self._clock.sleep(wait_s * self._random.uniform(1 - _JITTER, 1 + _JITTER))

    def _forget(self) -> None:
        now = self._clock.monotonic()
        self._kept.records.expire(self._calendar.now())
        for contact in list(self._kept.table):
            if self._peers.is_banned(contact.node_id, now):
                self._kept.table.discard(contact.node_id)

    async def _ask_seeds(self) -> None:
        known = {contact.endpoint for contact in self._kept.table}
        named = dict.fromkeys((*self._config.seed_endpoints, *self._seeds()))
        unknown = [endpoint for endpoint in named if endpoint not in known and endpoint.port]
        chosen = self._random.sample(unknown, min(len(unknown), MAX_ASKED_AT_ONCE))
        await asyncio.gather(*(self._greet(endpoint) for endpoint in chosen))

    async def _greet(self, endpoint: Endpoint) -> None:
        """Ask whoever is there for its contact, and take it if it is of that endpoint."""
        try:
            reply = await self._exchange.ask(endpoint, None, Ping())
            if reply.answer.contact is None:
                return  # a client
            read = self._contacts.read(reply.answer.contact)
        except PeerError as error:
            logger.debug("dht seed %s: %s", endpoint, error)
            return
        if read.node_id != reply.node_id:
            self._blame(reply.node_id, SchemaMismatch("contact of another node"))
        elif read.contact.endpoint == endpoint:
            self._welcome(read)
        else:
            self._queue_probe(read)

    async def _ask_silent(self) -> None:
        silent = self._kept.table.silent_since(self._clock.monotonic() - self._config.refresh_s)
        chosen = [
            ReadContact(contact.signed, self._contacts.read(contact.signed.to_proto()).contact)
            for contact in silent[:MAX_ASKED_AT_ONCE]
        ]
        await asyncio.gather(*(self._probe(read) for read in chosen))

    async def _probe_newcomers(self) -> None:
        while True:
            read = await self._probes.get()
            try:
                await self._probe(read)
            finally:
                self._probing.discard(read.node_id)

    async def _probe(self, read: ReadContact) -> None:
        """Ask a node at the endpoint that its contact names; an answer lets it into the table."""
        try:
            await self._exchange.ask(read.contact.endpoint, read.node_id, Ping())
        except PeerUnreachable:
            self._kept.table.note_silence(read.node_id)
        else:
            self._welcome(read)

    def _welcome(self, read: ReadContact) -> None:
        now = self._clock.monotonic()
        if not self._peers.is_banned(read.node_id, now):
            self._kept.table.take(read.node_id, read.contact.endpoint, read.signed, now)
            self._met_someone.set()

    def _queue_probe(self, read: ReadContact) -> None:
        """Have a newcomer, or one that has moved, asked where it says to be."""
        known = self._kept.table.get(read.node_id)
        is_news = known is None or known.endpoint != read.contact.endpoint
        if not is_news or read.node_id in self._probing or self._probes.full():
            return
        if self._gate.may_probe(read.contact.endpoint, self._clock.monotonic()):
            self._probing.add(read.node_id)
            self._probes.put_nowait(read)

    # -- what arrives ----------------------------------------------------------------

    def _take(self, data: bytes, source: Endpoint) -> None:
        if not self._is_open:
            return
        try:
            reason = self._take_message(data, source)
        except PeerError as error:
            reason = _REASONS.get(type(error), "malformed")
            logger.debug("dht datagram from %s dropped: %s", source, error)
        if reason is not None:
            self._dropped[reason] += 1

    def _take_message(self, data: bytes, source: Endpoint) -> str | None:
        """Take one datagram; why it was dropped, if it was.

        Raises:
            PeerError: it is malformed, or its signature does not verify.
        """
        message = parse(envelope_pb2.Signed, data)
        if message.kind not in (envelope_pb2.KIND_DHT_REQUEST, envelope_pb2.KIND_DHT_ANSWER):
            raise SchemaMismatch(f"statement of kind {message.kind} in a DHT datagram")
        if len(message.public_key) != PUBLIC_KEY_BYTES:
            raise SchemaMismatch("signed with a key of the wrong length")
        claimed, now = NodeId.of_key(message.public_key), self._clock.monotonic()
        if self._peers.is_banned(claimed, now):
            return "banned"
        is_contact = self._is_contact(claimed, source)
        if not self._gate.admits(message.public_key, source, now, is_contact=is_contact):
            return "flood"
        signed = verify(message)
        if signed.signer == self._kept.table.me:
            return "own"
        try:
            if signed.kind is Kind.DHT_ANSWER:
                return self._take_answer(signed)
            return self._take_request(signed, source, now)
        except PeerError as error:
            self._blame(signed.signer, error)
            raise

    def _take_answer(self, signed: Signed) -> str | None:
        answer = decode_answer(signed.body)
        if not self._exchange.take(signed.signer, answer):
            return "unasked"
        self._calendar.note(signed.signer, answer.time)
        self._met_someone.set()
        return None

    def _take_request(self, signed: Signed, source: Endpoint, now: float) -> str | None:
        request = decode_request(signed.body)
        asker = signed.signer
        if request.receiver not in (None, self._kept.table.me):
            return "not_for_us"
        if not self._gate.is_fresh(asker, request.nonce):
            return "replayed"
        if not self._is_contact(asker, source) and not self._gate.may_answer(source, now):
            return "unproven"
        if request.contact is not None:
            read = self._contacts.read(request.contact)
            if read.node_id != asker:
                raise SchemaMismatch("request with another node's contact", peer=asker)
            self._queue_probe(read)
        answer = self._answerer.answer(request, asker, source.host)
        signed = sign(Kind.DHT_ANSWER, answer.encode(), self._signer)
        self.num_answered += 1
        self._datagrams.send(source, signed.to_proto().SerializeToString())
        return None

    def _is_contact(self, node_id: NodeId, source: Endpoint) -> bool:
        """Whether a node has answered this one there."""
        contact = self._kept.table.get(node_id)
        return contact is not None and contact.endpoint == source

    def _blame(self, node_id: NodeId, error: PeerError) -> None:
        """Hold against a node what it has signed and no honest node sends.

        What only a later version says is no offence.
        """
        if isinstance(error, BadSignature):
            self._peers.offend(node_id, Offence.BAD_SIGNATURE, self._clock.monotonic())
        elif isinstance(error, SchemaMismatch | MessageTooLarge):
            self._peers.offend(node_id, Offence.MALFORMED, self._clock.monotonic())
