"""A node without a model, to be run on a machine of the lab: it finds peers and calls them all.

Usage: light_node.py FOLDER HOST [HINT ...]. Writes what it sees into FOLDER/seen.json, again and
again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from neuroswarm.clock import SystemClock
from neuroswarm.config import HeartbeatConfig, SwarmNodeConfig
from neuroswarm.config.sections import RelayConfig
from neuroswarm.errors import PeerError
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer import Peer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.carriers import NetworkCarriers
from neuroswarm.node.relaying import assemble_relaying
from neuroswarm.reach.service import ReachService
from neuroswarm.service import Service
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.heartbeats import Heartbeat

GRPC_PORT, HEARTBEAT_PORT = 8101, 9999
INTERVAL_S = 2.0
PAUSE_S = 0.5
TOKEN = SwarmToken(bytes(range(32)))
SWARM = b"s" * 32
ECHO = "Test/Echo"
PAYLOAD = bytes(range(256)) * 400


class Caller(Service):
    """Calls every live peer in turn, and counts who answered."""

    name = "caller"

    def __init__(self, carriers: NetworkCarriers, peers: PeerTable) -> None:
        super().__init__()
        self.answers: Counter[NodeId] = Counter()
        self._carriers = carriers
        self._peers = peers
        self._clock = SystemClock()
        carriers.rpc.serve_unary(ECHO, self._echo)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Nothing to open."""

    def _loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        return (self._call_all(),)

    async def _echo(self, _caller: NodeId, request: bytes) -> bytes:
        return request

    async def _call_all(self) -> None:
        while True:
            for peer in self._peers.alive(self._clock.monotonic()):
                await self._call(peer)
            await self._clock.sleep(PAUSE_S)

    async def _call(self, peer: Peer) -> None:
        began = self._clock.monotonic()
        try:
            reply = await self._carriers.rpc.call(peer.address, ECHO, PAYLOAD, timeout_s=20)
        except PeerError:
            return
        now = self._clock.monotonic()
        assert reply == PAYLOAD, "what comes back is what was sent"
        self._peers.record_rtt(peer.node_id, now - began, now)
        self.answers[peer.node_id] += 1


async def main(folder: Path, host: str, hints: list[str]) -> None:
    """Run until killed."""
    key, clock = NodeKey.generate(), SystemClock()
    config = SwarmNodeConfig(
        network={"host": "0.0.0.0", "grpc_port": GRPC_PORT}, heartbeat={"port": HEARTBEAT_PORT}
    )
    carriers = NetworkCarriers(key, TokenRing(TOKEN), config)
    peers = PeerTable(key.node_id, INTERVAL_S)

    def describe() -> Heartbeat:
        return Heartbeat(
            SWARM, 0, 0.0, host, GRPC_PORT, HEARTBEAT_PORT, 7101, 1, is_training=True,
            relays=relaying.lines.relays, reach=reach.reach,
        )  # fmt: skip

    heartbeat = HeartbeatService(
        HeartbeatConfig(interval_s=INTERVAL_S),
        datagrams=carriers.datagrams,
        record=OwnRecord(key, describe),
        peers=peers,
        clock=clock,
        hints=[Endpoint(hint, HEARTBEAT_PORT) for hint in hints],
    )
    reach = ReachService(
        carriers.rpc, peers, announced=lambda: [host], clock=clock, on_change=heartbeat.announce_now
    )
    relaying = assemble_relaying(RelayConfig(), carriers, reach, peers, clock=clock)
    relaying.lines.on_change = heartbeat.announce_now
    caller = Caller(carriers, peers)
    async with AsyncExitStack() as stack:
        for service in (carriers, heartbeat, reach, relaying.lines, caller):
            await stack.enter_async_context(service)
        while True:
            seen = {
                "id": key.node_id.hex(),
                **reach.get_status(),
                **relaying.get_status(),
                "answers": {peer.hex(): count for peer, count in caller.answers.items()},
                "relayed_peers": [p.node_id.hex() for p in peers.all(0.0) if p.needs_relay],
                "rtt": {p.node_id.hex(): p.rtt_s for p in peers.all(0.0)},
            }
            (folder / "seen.new").write_text(json.dumps(seen))
            (folder / "seen.new").replace(folder / "seen.json")
            await clock.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
