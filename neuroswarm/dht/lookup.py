"""Finding the nodes nearest to a key, and the records that they keep.

Knows whom to ask next and what of an answer to believe; refuses to know how questions travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from neuroswarm.clock import Clock
from neuroswarm.dht.answering import Kept
from neuroswarm.dht.contacts import ContactReader
from neuroswarm.dht.exchange import Exchange
from neuroswarm.dht.record_store import MAX_PER_KEY, is_timely
from neuroswarm.dht.routing import BUCKET_SIZE, Contact
from neuroswarm.dht.shortlist import Candidate, Shortlist
from neuroswarm.errors import BadSignature, PeerError, PeerUnreachable, SchemaMismatch
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.dht_messages import Answer, Fetch, Find, tag_of
from neuroswarm.wire.dht_records import DhtRecord, decode_dht_record
from neuroswarm.wire.signed import Kind, Signed, verify

NUM_WALKERS = 4
"""Questions of one lookup at a time (Kademlia's alpha)."""

MAX_ASKED = 64
"""Nodes that one lookup asks at most."""

MAX_KEEPERS = 2 * BUCKET_SIZE
"""Nodes whose records one lookup fetches at most."""

MAX_DRAIN_S = 15.0
"""Seconds for the records of one keeper: one that answers just in time, a record at a time, would
hold a lookup up for minutes. A keeper of many on a slow link gives some hundred in that time."""

Blame = Callable[[NodeId, PeerError], None]
"""Told who answered what no honest node does: (answerer, what it was)."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """A node that answered a lookup."""

    candidate: Candidate
    num_records: int
    """Records that it says to keep under the key."""
    permit: bytes
    """Lets this node store there."""


@dataclass(frozen=True, slots=True)
class Found:
    """A verified record."""

    record: DhtRecord
    signed: Signed


def read_dht_record(message: envelope_pb2.Signed, key: bytes) -> Found:
    """Verify a record that is said to be under `key`, and decode it.

    Raises:
        BadSignature: the signature does not verify.
        SchemaMismatch: it is no record, malformed, or belongs under another key.
        MessageTooLarge: a size or count is above its limit.
    """
    signed = verify(message)
    if signed.kind is not Kind.DHT_RECORD:
        raise SchemaMismatch(f"not a record: {signed.kind.name.lower()}", peer=signed.signer)
    record = decode_dht_record(signed.body)
    if record.key(signed.signer) != key:
        raise SchemaMismatch(f"record of another key, by {signed.signer}", peer=signed.signer)
    return Found(record, signed)


class Searcher:
    """Looks keys up, and feeds whoever answers to the routing table."""

    def __init__(
        self,
        exchange: Exchange,
        kept: Kept,
        contacts: ContactReader,
        *,
        clock: Clock,
        swarm_now: Callable[[], float],
        blame: Blame,
    ) -> None:
        self._exchange = exchange
        self._table, self._records = kept.table, kept.records
        self._contacts = contacts
        self._clock = clock
        self._swarm_now = swarm_now
        self._blame = blame

    async def walk(self, key: bytes) -> list[Keeper]:
        """Ask nodes nearer and nearer to a key.

        Returns:
            Those that answered, nearest first: the first 8 keep the key's records.
        """
        start = [self._candidate_of(contact) for contact in self._table.closest(key)]
        walk = _Walk(Shortlist(key, start, me=self._table.me))
        await asyncio.gather(*(self._walk(walk, key) for _ in range(NUM_WALKERS)))
        return [walk.keepers[candidate.node_id] for candidate in walk.shortlist.closest(MAX_ASKED)]

    def _candidate_of(self, contact: Contact) -> Candidate:
        # with its sequence, so that an old contact of that node, shown by others, leads nowhere
        read = self._contacts.read(contact.signed.to_proto())
        return Candidate(contact.node_id, contact.endpoint, contact.signed, read.contact.sequence)

    async def collect(self, key: bytes, keepers: Iterable[Keeper]) -> dict[NodeId, Found]:
        """All valid records that the keepers have under a key, the newest of each signer.

        The nearest keeper is asked first and alone, so that the others need to send only what it
        lacks. Records that are withdrawn are among the found.
        """
        found = {
            signed.signer: read_dht_record(signed.to_proto(), key)
            for signed in self._records.page(key, b"", (), self._swarm_now())
        }
        having = [keeper for keeper in keepers if keeper.num_records][:MAX_KEEPERS]
        for together in (having[:1], having[1:]):
            await asyncio.gather(*(self._drain(key, keeper, found) for keeper in together))
        return found

    async def _walk(self, walk: _Walk, key: bytes) -> None:
        """One of the walkers: asks until the lookup is over."""
        while True:
            async with walk.changed:
                while (candidate := walk.choose_next()) is None and not walk.is_over:
                    await walk.changed.wait()
            if candidate is None:
                return
            keeper = await self._find(candidate, key, walk.shortlist)
            async with walk.changed:
                walk.note(candidate, keeper)
                walk.changed.notify_all()

    async def _find(self, candidate: Candidate, key: bytes, shortlist: Shortlist) -> Keeper | None:
        """Ask one node; None if it does not answer, or wrongly, or must not be asked now."""
        node_id = candidate.node_id
        if not self._exchange.may_ask(node_id, candidate.endpoint):
            return None
        try:
            reply = await self._exchange.ask(candidate.endpoint, node_id, Find(key))
            shortlist.add(self._read_contacts(reply.answer))
        except PeerUnreachable:
            self._table.note_silence(node_id)
            return None
        except PeerError as error:
            self._blame(node_id, error)
            return None
        now = self._clock.monotonic()
        self._table.take(node_id, candidate.endpoint, candidate.signed, now)
        return Keeper(candidate, reply.answer.num_records, reply.answer.permit)

    def _read_contacts(self, answer: Answer) -> list[Candidate]:
        read = [self._contacts.read(message) for message in answer.contacts]
        return [
            Candidate(r.node_id, r.contact.endpoint, r.signed, r.contact.sequence) for r in read
        ]

    async def _drain(self, key: bytes, keeper: Keeper, found: dict[NodeId, Found]) -> None:
        """Fetch what one keeper has and `found` lacks."""
        node_id, after, num_taken = keeper.candidate.node_id, b"", 0
        until = self._clock.monotonic() + MAX_DRAIN_S
        while num_taken < MAX_PER_KEY and self._clock.monotonic() < until:
            known = sorted((signer, f.signed) for signer, f in found.items() if signer > after)
            tags = [tag_of(signed.signature) for _, signed in known[: limits.MAX_DHT_TAGS]]
            question = Fetch(key, after, frozenset(tags))
            try:
                reply = await self._exchange.ask(keeper.candidate.endpoint, node_id, question)
                after = self._take_page(reply.answer, key, after, found)
            except PeerUnreachable:
                self._table.note_silence(node_id)
                return
            except PeerError as error:
                self._blame(node_id, error)
                return
            num_taken += len(reply.answer.records)
            if not reply.answer.num_left or not reply.answer.records:
                return

    def _take_page(
        self, answer: Answer, key: bytes, after: bytes, found: dict[NodeId, Found]
    ) -> bytes:
        """Add a page's records to `found`; returns the id of the last signer.

        Raises:
            PeerError: a record is not authentic, or not where it belongs: the answerer's fault.
        """
        for message in answer.records:
            new = read_dht_record(message, key)
            signer = new.signed.signer
            if signer <= after:
                raise BadSignature(f"records out of order: {signer}")
            after = signer
            known = found.get(signer)
            is_newer = known is None or known.record.sequence < new.record.sequence
            if is_newer and is_timely(new.record, self._swarm_now()):
                found[signer] = new
        return after


class _Walk:
    """One lookup's state that its walkers share."""

    def __init__(self, shortlist: Shortlist) -> None:
        self.shortlist = shortlist
        self.changed = asyncio.Condition()
        self.keepers: dict[NodeId, Keeper] = {}

    @property
    def is_over(self) -> bool:
        return self.shortlist.is_over or self.shortlist.num_asked >= MAX_ASKED

    def choose_next(self) -> Candidate | None:
        return None if self.is_over else self.shortlist.choose_next()

    def note(self, candidate: Candidate, keeper: Keeper | None) -> None:
        if keeper is None:
            self.shortlist.note_failure(candidate.node_id)
        else:
            self.keepers[candidate.node_id] = keeper
            self.shortlist.note_answer(candidate.node_id)
