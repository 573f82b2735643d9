"""A node's transports behind its meter.

Knows nothing of what is carried, and not what is allowed.
"""

from __future__ import annotations

from neuroswarm.metering.metered import Gate, MeteredDatagrams, MeteredRpc
from neuroswarm.node.carriers import Carriers, WrappedCarriers

SELF_PACED = ("State/Piece", "Shards/Bytes")
"""Streams that their handlers pace: a donor must know for how long it held a downloader up."""


class MeteredCarriers(WrappedCarriers):
    """A node's transports behind its meter."""

    def __init__(self, inner: Carriers, gate: Gate) -> None:
        rpc = MeteredRpc(inner.rpc, gate, unpaced=SELF_PACED)
        datagrams = MeteredDatagrams(inner.datagrams, gate)
        dht_datagrams = MeteredDatagrams(inner.dht_datagrams, gate)
        super().__init__(inner, rpc=rpc, datagrams=datagrams, dht_datagrams=dht_datagrams)
        self.metered = (rpc, datagrams, dht_datagrams)
        """All of them, for who counts what they moved."""
