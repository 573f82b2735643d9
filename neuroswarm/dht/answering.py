"""What a node answers to each question.

Decides and does no I/O. Refuses to know how often somebody may ask (`neuroswarm.dht.gate`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from neuroswarm.clock import Clock
from neuroswarm.dht.contacts import OwnContact
from neuroswarm.dht.permits import Permits
from neuroswarm.dht.record_store import RecordStore
from neuroswarm.dht.routing import BUCKET_SIZE, RoutingTable
from neuroswarm.membership.addresses import group_of
from neuroswarm.values import NodeId
from neuroswarm.wire.dht_messages import (
    Answer,
    Fetch,
    Find,
    Request,
    Store,
    Verdict,
    fitting,
)
from neuroswarm.wire.dht_records import decode_dht_record
from neuroswarm.wire.signed import Kind, verify


@dataclass(frozen=True, slots=True)
class Kept:
    """What a node knows of the DHT."""

    table: RoutingTable
    records: RecordStore
    own: OwnContact


class Answerer:
    """Answers from the routing table and the records kept."""

    def __init__(self, kept: Kept, *, clock: Clock, swarm_now: Callable[[], float]) -> None:
        self._table, self._records, self._own = kept.table, kept.records, kept.own
        self._clock = clock
        self._swarm_now = swarm_now
        self._permits = Permits()

    def answer(self, request: Request, asker: NodeId, host: str) -> Answer:
        """The answer to a request of `asker` that came from an address.

        Raises:
            PeerError: what the request brings is malformed, or not authentic.
        """
        question = request.question
        answer = Answer(request.nonce, self._clock.wall())
        if isinstance(question, Find):
            return self._find(answer, question.key, asker, host)
        if isinstance(question, Fetch):
            return self._fetch(answer, question)
        if isinstance(question, Store):
            return self._store(answer, question, asker, host)
        own = self._own.get(self._swarm_now())
        return answer if own is None else replace(answer, contact=own.to_proto())

    def _find(self, answer: Answer, key: bytes, asker: NodeId, host: str) -> Answer:
        found = replace(
            answer,
            num_records=self._records.count(key, self._swarm_now()),
            permit=self._permits.give(asker, host, self._clock.monotonic()),
        )
        others = [c.signed for c in self._table.steady(key, BUCKET_SIZE + 1) if c.node_id != asker]
        return replace(found, contacts=fitting(found, others[:BUCKET_SIZE]))

    def _fetch(self, answer: Answer, question: Fetch) -> Answer:
        wanted = self._records.page(question.key, question.after, question.known, self._swarm_now())
        records = fitting(answer, wanted)
        return replace(answer, records=records, num_left=len(wanted) - len(records))

    def _store(self, answer: Answer, question: Store, asker: NodeId, host: str) -> Answer:
        if self._own.is_client:
            return replace(answer, verdict=Verdict.REFUSED)
        if not self._permits.holds(question.permit, asker, host, self._clock.monotonic()):
            return replace(answer, verdict=Verdict.BAD_PERMIT)
        signed = verify(question.record)
        if signed.kind is not Kind.DHT_RECORD or signed.signer != asker:
            return replace(answer, verdict=Verdict.REFUSED)
        record = decode_dht_record(signed.body)
        verdict = self._records.put(record, signed, group_of(host), self._swarm_now())
        kept = self._records.get_signed(record.key(asker), asker)
        if verdict is Verdict.NOT_NEWER and kept is not None:
            return replace(answer, verdict=verdict, records=fitting(answer, [kept]))
        return replace(answer, verdict=verdict)
