"""The records that a node keeps for others, within quotas of each key, publisher and address.

Refuses to know how records travel; they arrive here verified, decoded, and from their publishers.
Instants are seconds since 1970 by the swarm's clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from neuroswarm.dht.shares import Ends, Place, Shares
from neuroswarm.values import NodeId
from neuroswarm.wire.dht_messages import Verdict, tag_of
from neuroswarm.wire.dht_records import DhtRecord
from neuroswarm.wire.signed import Signed

MAX_RECORDS = 8192
"""Records kept in all; about 6 MiB if each is as large as can be."""

MAX_PER_KEY = 128
"""Publishers under one key."""

MAX_PER_PUBLISHER = 80
"""Records of one publisher: its swarm, itself, and its fragments."""

MAX_TTL_S = 2 * 3600.0
"""Longest time to live of a record."""

SKEW_S = 60.0
"""How far two honest nodes' swarm times may be apart."""


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is kept."""

    record: DhtRecord
    signed: Signed
    group: str
    """Where it came from: an address, or a part of the net that one party has at hand."""


def is_timely(record: DhtRecord, now: float) -> bool:
    """Whether a record's end is neither over nor further ahead than any may be."""
    return now < record.expires_at <= now + MAX_TTL_S + SKEW_S


class RecordStore:
    """Records by key and publisher.

    At a bound the newcomer takes the place of the record that ends first of the address with the
    most records there, if that address has at least two more than the newcomer's; else it is
    refused. So whoever is first, or has many identities, cannot fill a key.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, dict[NodeId, Held]] = {}
        self._publishers: Counter[NodeId] = Counter()
        self._ends = Ends()
        self._shares = Shares()
        self.num_refused: Counter[str] = Counter()
        """Records refused, by verdict."""

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def num_keys(self) -> int:
        """Keys under which something is kept."""
        return len(self._keys)

    def count(self, key: bytes, now: float) -> int:
        """Records under a key that are not over."""
        return sum(held.record.expires_at > now for held in self._keys.get(key, {}).values())

    def get_signed(self, key: bytes, publisher: NodeId) -> Signed | None:
        """The record of a publisher under a key, over or not."""
        held = self._keys.get(key, {}).get(publisher)
        return None if held is None else held.signed

    def put(self, record: DhtRecord, signed: Signed, group: str, now: float) -> Verdict:
        """Keep a verified record of its signer, unless a bound or a newer one forbids it."""
        verdict = self._put(record, signed, group, now)
        if verdict is not Verdict.STORED:
            self.num_refused[verdict.name.lower()] += 1
        return verdict

    def page(self, key: bytes, after: bytes, known: Collection[bytes], now: float) -> list[Signed]:
        """Records under a key that are not over and not known, of signers after an id, by id."""
        return [
            held.signed
            for publisher, held in sorted(self._keys.get(key, {}).items())
            if publisher > after
            if held.record.expires_at > now
            if tag_of(held.signed.signature) not in known
        ]

    def expire(self, now: float) -> int:
        """Drop what is over; returns how many records that were."""
        num_over = 0
        while (first := self._ends.first()) is not None and first[0] <= now:
            self._drop(*first[1])
            num_over += 1
        return num_over

    def _put(self, record: DhtRecord, signed: Signed, group: str, now: float) -> Verdict:
        if not is_timely(record, now):
            return Verdict.BAD_TIME
        publisher = signed.signer
        key = record.key(publisher)
        known = self._keys.get(key, {}).get(publisher)
        if known is not None:
            if known.signed == signed:
                return Verdict.STORED
            if known.record.sequence >= record.sequence:
                return Verdict.NOT_NEWER
            self._drop(key, publisher)
        elif not self._make_room(key, publisher, group, now):
            return Verdict.NO_ROOM
        self._keys.setdefault(key, {})[publisher] = Held(record, signed, group)
        self._publishers[publisher] += 1
        self._ends.add((key, publisher), record.expires_at)
        self._shares.add(group, (key, publisher), record.expires_at)
        return Verdict.STORED

    def _make_room(self, key: bytes, publisher: NodeId, group: str, now: float) -> bool:
        """Whether there is a place for one more, which another may have to give up."""
        if self._publishers[publisher] >= MAX_PER_PUBLISHER:
            return False
        if len(self) >= MAX_RECORDS or len(self._keys.get(key, {})) >= MAX_PER_KEY:
            self.expire(now)
        here = self._keys.get(key, {})
        if len(here) >= MAX_PER_KEY:
            most, first = _first_of_most(key, here)
            num_own = sum(held.group == group for held in here.values())
        elif len(self) >= MAX_RECORDS:
            most, first = self._shares.first_of_most()
            num_own = self._shares.count(group)
        else:
            return True
        if most < num_own + 2:
            return False
        self._drop(*first)
        return True

    def _drop(self, key: bytes, publisher: NodeId) -> None:
        held = self._keys[key].pop(publisher)
        if not self._keys[key]:
            del self._keys[key]
        self._publishers[publisher] -= 1
        if not self._publishers[publisher]:
            del self._publishers[publisher]
        self._ends.discard((key, publisher))
        self._shares.remove(held.group, (key, publisher))


def _first_of_most(key: bytes, here: dict[NodeId, Held]) -> tuple[int, Place]:
    """How many records under a key are of the address with most; which of them ends first."""
    groups = Counter(held.group for held in here.values())
    crowded, most = max(groups.items(), key=lambda entry: (entry[1], entry[0]))
    of_it = (publisher for publisher, held in here.items() if held.group == crowded)
    first = min(of_it, key=lambda publisher: (here[publisher].record.expires_at, publisher))
    return most, (key, first)
