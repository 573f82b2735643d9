"""Real transports that lose datagrams, as WiFi does, by a seed.

Refuses to know what is lost.
"""

from __future__ import annotations

import random

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.node.carriers import MakeCarriers, NetworkCarriers
from neuroswarm.values import Endpoint


class LossyUdp(UdpTransport):
    """Loses a share of what it is to send."""

    def __init__(self, sealer: Sealer, listen: Endpoint, *, loss: float, seed: int) -> None:
        """Take the share that is lost, 0 to 1, and the seed of chance."""
        super().__init__(sealer, listen)
        self._loss = loss
        self._chance = random.Random(seed)
        self.num_lost = 0

    def send(self, to: Endpoint, data: bytes) -> None:
        """Send as `UdpTransport`, or not."""
        if self._chance.random() < self._loss:
            self.num_lost += 1
        else:
            super().send(to, data)


class LossyCarriers(NetworkCarriers):
    """gRPC, and UDP that loses datagrams."""

    datagrams: LossyUdp

    def __init__(
        self, key: NodeKey, tokens: TokenRing, config: SwarmNodeConfig, *, loss: float, seed: int
    ) -> None:
        super().__init__(key, tokens, config)
        listen = Endpoint(config.network.host, config.heartbeat.port)
        self.datagrams = LossyUdp(tokens.sealer, listen, loss=loss, seed=seed)


def lossy(loss: float, seed: int) -> MakeCarriers:
    """What makes a node's carriers with this share of loss, for `Surroundings`."""
    return lambda key, tokens, config: LossyCarriers(key, tokens, config, loss=loss, seed=seed)
