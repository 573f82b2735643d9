"""A member that says what a test wants it to say, properly signed.

Knows nothing of when an honest member would say it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from neuroswarm.identity.node_key import NodeKey
from neuroswarm.values import Endpoint, NodeId, PeerAddress
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.messages import (
    Ballot,
    Confirm,
    Contribution,
    FragmentPayload,
    Ready,
    Seal,
    Skip,
)
from neuroswarm.wire.signed import Kind, Signed, sign

SWARM = hashlib.sha256(b"a swarm of speakers").digest()
ARCHITECTURE = hashlib.sha256(b"an architecture of speakers").digest()


class Speaker:
    """A key that follows from a name, and statements about one round on one base digest."""

    def __init__(self, name: str, *, round_: int = 0, base: bytes = bytes(32)) -> None:
        """Speak about round `round_` on `base`, 32 bytes."""
        seed = hashlib.sha256(name.encode()).digest()
        self.key = NodeKey(Ed25519PrivateKey.from_private_bytes(seed))
        self.node_id: NodeId = self.key.node_id
        self.address = PeerAddress(self.node_id, Endpoint(f"{name}.example", 8101))
        self._name = name
        self._about = (SWARM, round_, base)

    def about(self, round_: int, base: bytes = bytes(32)) -> Speaker:
        """The same member, speaking about another round."""
        return Speaker(self._name, round_=round_, base=base)

    def header(self, *payloads: bytes, **changes: Any) -> Contribution:
        """A header that promises these payloads, one a fragment."""
        parts = tuple(
            FragmentPayload(index, hashlib.sha256(payload).digest(), len(payload))
            for index, payload in enumerate(payloads)
        )
        header = Contribution(
            *self._about,
            architecture=ARCHITECTURE,
            codec="int4",
            inner_steps=50,
            tokens=1000,
            loss=2.0,
            fragments=parts,
        )
        return replace(header, **changes)

    def contribution(self, *payloads: bytes, **changes: Any) -> Signed:
        """A signed header."""
        return sign(Kind.CONTRIBUTION, self.header(*payloads, **changes).encode(), self.key)

    def ready(self) -> Signed:
        """It has taken its inner steps."""
        return sign(Kind.READY, Ready(*self._about, 50).encode(), self.key)

    def skip(self) -> Signed:
        """It publishes nothing."""
        return sign(Kind.SKIP, Skip(*self._about, 10).encode(), self.key)

    def seal(self) -> Signed:
        """It takes no further contributions."""
        return sign(Kind.SEAL, Seal(*self._about).encode(), self.key)

    def ballot(self, contributions: Iterable[bytes] = ()) -> Signed:
        """It holds these."""
        body = Ballot(*self._about, tuple(sorted(contributions))).encode()
        return sign(Kind.BALLOT, body, self.key)

    def confirm(self, contributions: Iterable[bytes] = ()) -> Signed:
        """It finds these agreed."""
        body = Confirm(*self._about, tuple(sorted(contributions))).encode()
        return sign(Kind.CONFIRM, body, self.key)

    def heartbeat(self, sequence: int = 1, **changes: Any) -> tuple[Signed, Heartbeat]:
        """Its record of itself, training in the round that it speaks about."""
        swarm_id, round_, base = self._about
        host, port = self.address.endpoint
        record = Heartbeat(
            swarm_id, sequence, 0.0, host, port, 9999, 7101, 1, is_training=True,
            round=round_, digest=base,
        )  # fmt: skip
        record = replace(record, **changes)
        return sign(Kind.HEARTBEAT, record.encode(), self.key), record
