"""Permits to store: given with an answer, they prove that the asker is where it sends from.

So a request that was overheard, or sent under another's address, stores nothing, and the quota of
an address is used up by nobody but those behind it. Keeps no table: a permit is a keyed hash.

Source: BEP 5, "DHT Protocol" of BitTorrent, the token of get_peers. Differs: bound to the asker's
key too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from neuroswarm.values import NodeId
from neuroswarm.wire.dht_messages import PERMIT_BYTES

EPOCH_S = 3600.0
"""A permit holds in the epoch in which it was given, and in the next."""


class Permits:
    """Gives and checks permits with a secret of this life of the node."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def give(self, asker: NodeId, host: str, now: float) -> bytes:
        """A permit for `asker` at an address; `now` is monotonic, in seconds."""
        return self._permit(asker, host, int(now // EPOCH_S))

    def holds(self, permit: bytes, asker: NodeId, host: str, now: float) -> bool:
        """Whether the permit was given to `asker` at an address lately."""
        epoch = int(now // EPOCH_S)
        return any(
            hmac.compare_digest(permit, self._permit(asker, host, at)) for at in (epoch, epoch - 1)
        )

    def _permit(self, asker: NodeId, host: str, epoch: int) -> bytes:
        text = b"%s %d %s" % (asker, epoch, host.encode())
        return hmac.digest(self._secret, text, hashlib.sha256)[:PERMIT_BYTES]
