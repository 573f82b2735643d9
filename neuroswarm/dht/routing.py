"""The nodes that a node knows in the DHT, more of the near ones than of the far ones.

Only who answered a fresh question at the endpoint that its own signed contact names gets in: nobody
can put another, or an address that is not its own, into a table. Refuses to know how it is asked.
Times are instants of the monotonic clock, in seconds.

Source: Maymounkov and Mazieres 2002, "Kademlia", sections 2.2 and 2.4 (buckets, replacement
cache). Differs: a bucket's contact is dropped after three unanswered questions, each sent several
times, not after one; in an open swarm few contacts are taken from one address.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from neuroswarm.membership.addresses import group_of
from neuroswarm.values import NODE_ID_BYTES, Endpoint, NodeId
from neuroswarm.wire.signed import Signed

BUCKET_SIZE = 8
"""k: contacts in a bucket, and keepers of a key."""

MAX_STRIKES = 3
"""Questions without an answer, in a row, after which a contact is dropped."""

NUM_BUCKETS = 8 * NODE_ID_BYTES


@dataclass(slots=True)
class Contact:
    """One node that answered."""

    node_id: NodeId
    endpoint: Endpoint
    signed: Signed
    """Its own contact, to be passed on."""
    last_seen_s: float
    strikes: int = 0


def distance(a: bytes, b: bytes) -> int:
    """How far two ids or keys of 20 bytes are from each other: 0 to 2**160 - 1."""
    return int.from_bytes(a, "big") ^ int.from_bytes(b, "big")


class RoutingTable:
    """Contacts in at most 160 buckets of 8, and as many spare ones beside each bucket."""

    def __init__(self, me: NodeId, *, max_per_address: int | None = None) -> None:
        """Start empty.

        Args:
            me: This node, which is never in its own table.
            max_per_address: Contacts of one IPv4 address or IPv6 /64, >= 1; None for no limit.
        """
        self.me = me
        self._max_per_address = max_per_address
        self._buckets: dict[int, OrderedDict[NodeId, Contact]] = {}
        self._spares: dict[int, OrderedDict[NodeId, Contact]] = {}
        self._groups: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Contact]:
        for bucket in self._buckets.values():
            yield from bucket.values()

    def get(self, node_id: NodeId) -> Contact | None:
        """The contact of a node, if it is in a bucket."""
        bucket = self._buckets.get(self._index(node_id))
        return None if bucket is None else bucket.get(node_id)

    def take(self, node_id: NodeId, endpoint: Endpoint, signed: Signed, now: float) -> bool:
        """Take a node that just answered at the endpoint which its signed contact names.

        A known one moves to that endpoint. A newcomer to a full bucket waits as a spare one: who
        is long there is likely to stay, and new identities cannot drive the old ones out.

        Returns:
            Whether it is in the table now, spare ones not counted.
        """
        if node_id == self.me:
            return False
        known = self.get(node_id)
        if known is not None and known.endpoint.host == endpoint.host:
            known.endpoint, known.signed = endpoint, signed
            self.note_answer(node_id, now)
            return True
        if known is not None:
            self._remove(known)
        contact = Contact(node_id, endpoint, signed, now)
        bucket = self._buckets.setdefault(self._index(node_id), OrderedDict())
        if len(bucket) < BUCKET_SIZE and self._has_room_at(endpoint.host):
            self._insert(contact)
            return True
        self._keep_spare(contact)
        return False

    def note_answer(self, node_id: NodeId, now: float) -> None:
        """A node answered: it lives, and moves behind those that did not for longer."""
        contact = self.get(node_id)
        if contact is not None:
            contact.last_seen_s, contact.strikes = now, 0
            self._buckets[self._index(node_id)].move_to_end(node_id)

    def note_silence(self, node_id: NodeId) -> bool:
        """A question to a node stayed without an answer; returns whether it was dropped for it.

        As long as nobody at all answers, nobody is dropped: it is this node that is cut off.
        """
        contact = self.get(node_id)
        if contact is None:
            return False
        contact.strikes += 1
        if contact.strikes < MAX_STRIKES or all(other.strikes for other in self):
            return False
        self._remove(contact)
        self._promote_spare(self._index(node_id))
        return True

    def discard(self, node_id: NodeId) -> None:
        """Drop a node at once, also from the spare ones: it leaves, or is banned."""
        index = self._index(node_id)
        self._spares.get(index, OrderedDict()).pop(node_id, None)
        contact = self.get(node_id)
        if contact is not None:
            self._remove(contact)
            self._promote_spare(index)

    def closest(self, key: bytes, count: int = BUCKET_SIZE) -> list[Contact]:
        """The `count` contacts nearest to a key, those that owe an answer after all others."""
        ranked = sorted(self, key=lambda c: (c.strikes > 0, distance(c.node_id, key)))
        return ranked[:count]

    def steady(self, key: bytes, count: int = BUCKET_SIZE) -> list[Contact]:
        """The `count` nearest contacts that owe no answer, to be passed on."""
        ready = [contact for contact in self if not contact.strikes]
        return sorted(ready, key=lambda c: distance(c.node_id, key))[:count]

    def silent_since(self, instant: float) -> list[Contact]:
        """Contacts not heard since then, those silent for longest first."""
        return sorted(
            (contact for contact in self if contact.last_seen_s < instant),
            key=lambda contact: contact.last_seen_s,
        )

    def _index(self, node_id: NodeId) -> int:
        return distance(self.me, node_id).bit_length() - 1

    def _has_room_at(self, host: str) -> bool:
        limit = self._max_per_address
        return limit is None or self._groups[group_of(host)] < limit

    def _insert(self, contact: Contact) -> None:
        self._groups[group_of(contact.endpoint.host)] += 1
        self._buckets.setdefault(self._index(contact.node_id), OrderedDict())[contact.node_id] = (
            contact
        )

    def _remove(self, contact: Contact) -> None:
        group = group_of(contact.endpoint.host)
        self._groups[group] -= 1
        if not self._groups[group]:
            del self._groups[group]
        index = self._index(contact.node_id)
        del self._buckets[index][contact.node_id]
        if not self._buckets[index]:
            del self._buckets[index]

    def _keep_spare(self, contact: Contact) -> None:
        spares = self._spares.setdefault(self._index(contact.node_id), OrderedDict())
        spares[contact.node_id] = contact
        spares.move_to_end(contact.node_id)
        if len(spares) > BUCKET_SIZE:
            spares.popitem(last=False)

    def _promote_spare(self, index: int) -> None:
        """Put the spare contact that answered last into the place that became free."""
        spares = self._spares.get(index)
        while spares:
            _, contact = spares.popitem()
            if self._has_room_at(contact.endpoint.host):
                self._insert(contact)
                break
