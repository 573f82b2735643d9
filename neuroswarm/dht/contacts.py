"""Signed contacts: making this node's own, and reading those of others, each verified once.

Refuses to know which of them are worth keeping.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from neuroswarm.errors import SchemaMismatch
from neuroswarm.v1 import envelope_pb2
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.dht_records import DhtContact, decode_dht_contact
from neuroswarm.wire.signed import Kind, Signed, Signer, sign, verify

MAX_REMEMBERED = 1024
"""Contacts that need not be verified again; the one used longest ago goes first."""


@dataclass(frozen=True, slots=True)
class ReadContact:
    """A verified contact of another node."""

    signed: Signed
    contact: DhtContact

    @property
    def node_id(self) -> NodeId:
        """Whose it is."""
        return self.signed.signer


class ContactReader:
    """Verifies and decodes contacts, and remembers the last ones by all their bytes."""

    def __init__(self) -> None:
        self._read: OrderedDict[tuple[bytes, bytes, bytes], ReadContact] = OrderedDict()

    def read(self, message: envelope_pb2.Signed) -> ReadContact:
        """A contact that came from elsewhere.

        Raises:
            BadSignature: the signature does not verify.
            SchemaMismatch: it is no contact, or malformed.
            MessageTooLarge: a size is above its limit.
        """
        name = (message.public_key, message.signature, message.body)
        known = self._read.get(name)
        if known is not None and message.kind == envelope_pb2.KIND_DHT_CONTACT:
            self._read.move_to_end(name)
            return known
        signed = verify(message)
        if signed.kind is not Kind.DHT_CONTACT:
            raise SchemaMismatch(f"not a contact: {signed.kind.name.lower()}", peer=signed.signer)
        read = self._read[name] = ReadContact(signed, decode_dht_contact(signed.body))
        if len(self._read) > MAX_REMEMBERED:
            self._read.popitem(last=False)
        return read


class OwnContact:
    """This node's contact, signed anew whenever its endpoint has changed."""

    def __init__(self, signer: Signer, locate: Callable[[], Endpoint]) -> None:
        """Take the key, and what tells where this node takes DHT datagrams now."""
        self._signer = signer
        self._locate = locate
        self._made: tuple[Endpoint, Signed] | None = None
        self._sequence = 0
        self.is_client = False
        """Whether others cannot reach this node, so that it tells none where it is."""

    def get(self, now: float) -> Signed | None:
        """The contact at `now`, seconds since 1970 by the swarm's clocks; None for a client."""
        endpoint = self._locate()
        if self.is_client or not endpoint.port or len(endpoint.host) > limits.MAX_DHT_HOST_CHARS:
            return None
        if self._made is None or self._made[0] != endpoint:
            self._sequence = max(self._sequence + 1, int(max(now, 0.0)))
            body = DhtContact(endpoint, self._sequence).encode()
            self._made = endpoint, sign(Kind.DHT_CONTACT, body, self._signer)
        return self._made[1]
