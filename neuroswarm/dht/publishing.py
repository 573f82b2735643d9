"""Putting this node's own records where they are looked for, and taking them away again.

Refuses to know what a record says and when it is renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from neuroswarm.dht.exchange import Exchange
from neuroswarm.dht.lookup import Keeper, Searcher, read_dht_record
from neuroswarm.dht.record_store import RecordStore
from neuroswarm.dht.routing import BUCKET_SIZE
from neuroswarm.errors import PeerError
from neuroswarm.values import NodeId
from neuroswarm.wire.dht_messages import Answer, Store, Verdict
from neuroswarm.wire.dht_records import DhtRecord
from neuroswarm.wire.limits import MAX_COUNT
from neuroswarm.wire.signed import Kind, Signed, Signer, sign

_OWN = "(this node)"
"""Under what this node's own records count among the addresses of those that it keeps."""


class Publisher:
    """Signs this node's records, each newer than the last, and has them kept by 8 nodes and itself.

    Sequences are milliseconds of swarm time, so that they grow across restarts; should one be
    behind what a keeper has, the keeper shows that record, which this node has signed itself.
    """

    def __init__(
        self,
        signer: Signer,
        exchange: Exchange,
        searcher: Searcher,
        records: RecordStore,
        *,
        ttl_s: float,
        swarm_now: Callable[[], float],
    ) -> None:
        self._signer = signer
        self._me = NodeId.of_key(signer.public_key)
        self._exchange = exchange
        self._searcher = searcher
        self._records = records
        self._ttl_s = ttl_s
        self._swarm_now = swarm_now
        self._sequence = 0
        self._keepers: dict[bytes, tuple[DhtRecord, list[Keeper]]] = {}

    async def publish(self, draft: DhtRecord) -> int:
        """Have a record of this node kept; sequence and end are filled in.

        Returns:
            How many other nodes keep it now.

        Raises:
            MessageTooLarge: the record does not fit into a datagram.
        """
        key = draft.key(self._me)
        keepers = (await self._searcher.walk(key))[:BUCKET_SIZE]
        self._keepers[key] = draft, keepers
        num_stored, newest = await self._store(draft, key, keepers)
        if newest >= self._sequence:
            self._sequence = newest  # this node's clock was put back, or was wrong before
            num_stored, _ = await self._store(draft, key, keepers)
        return num_stored

    async def withdraw(self) -> int:
        """Tell the keepers of all records that this node is not there any more.

        Returns:
            How many records were replaced, over all keepers.
        """
        drafts = [
            (replace(draft, is_withdrawn=True), key, keepers)
            for key, (draft, keepers) in self._keepers.items()
        ]
        self._keepers.clear()
        stored = await asyncio.gather(*(self._store(*draft) for draft in drafts))
        return sum(num_stored for num_stored, _ in stored)

    async def _store(
        self, draft: DhtRecord, key: bytes, keepers: Iterable[Keeper]
    ) -> tuple[int, int]:
        """Sign and store; how many keep it, and the greatest sequence that a keeper held."""
        signed, record = self._sign(draft)
        self._records.put(record, signed, _OWN, self._swarm_now())
        answers = await asyncio.gather(*(self._ask(keeper, signed) for keeper in keepers))
        given = [answer for answer in answers if answer is not None]
        num_stored = sum(answer.verdict is Verdict.STORED for answer in given)
        return num_stored, max((self._held_sequence(a, key) for a in given), default=0)

    async def _ask(self, keeper: Keeper, signed: Signed) -> Answer | None:
        candidate = keeper.candidate
        question = Store(signed.to_proto(), keeper.permit)
        if not keeper.permit:
            return None
        try:
            reply = await self._exchange.ask(candidate.endpoint, candidate.node_id, question)
        except PeerError:
            return None  # the next renewal finds another keeper
        return reply.answer

    def _sign(self, draft: DhtRecord) -> tuple[Signed, DhtRecord]:
        now = self._swarm_now()
        self._sequence = max(self._sequence + 1, min(int(max(now, 0.0) * 1000), MAX_COUNT // 2))
        record = replace(draft, sequence=self._sequence, expires_at=now + self._ttl_s)
        return sign(Kind.DHT_RECORD, record.encode(), self._signer), record

    def _held_sequence(self, answer: Answer, key: bytes) -> int:
        """Sequence of the record of this node's own that a keeper shows; 0 if it shows none."""
        if answer.verdict is not Verdict.NOT_NEWER or not answer.records:
            return 0
        try:
            held = read_dht_record(answer.records[0], key)
        except PeerError:
            return 0
        return held.record.sequence if held.signed.signer == self._me else 0
