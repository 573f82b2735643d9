"""A node's heartbeats and addresses without training, as a process: says what it knows.

Arguments: its peer's address or `-`, and further addresses of hints that lead nowhere.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack

from neuroswarm.clock import SystemClock
from neuroswarm.config import HeartbeatConfig
from neuroswarm.discovery.announce import make_finder
from neuroswarm.discovery.host_names import NameLookup
from neuroswarm.discovery.whereabouts import Whereabouts
from neuroswarm.heartbeat.service import HeartbeatService
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.values import Endpoint
from neuroswarm.wire.heartbeats import Heartbeat

PORT = 9999
INTERVAL_S = 1.0
LOOK_S = 0.05


async def main(peer: str, others: list[str]) -> None:
    """Run until killed."""
    clock, key = SystemClock(), NodeKey.generate()
    hints = [*others, *([] if peer == "-" else [peer])]

    def describe() -> Heartbeat:
        host, *other_hosts = whereabouts.hosts
        return Heartbeat(
            b"s" * 32, 0, 0.0, host, 8101, PORT, 7101, 1,
            is_training=False, other_hosts=tuple(other_hosts),
        )  # fmt: skip

    peers = PeerTable(key.node_id, INTERVAL_S)
    datagrams = UdpTransport(Sealer(b"k" * 32), Endpoint("::", PORT))
    heartbeat = HeartbeatService(
        HeartbeatConfig(interval_s=INTERVAL_S, port=PORT),
        datagrams=datagrams,
        record=OwnRecord(key, describe),
        peers=peers,
        clock=clock,
        hints=[] if peer == "-" else [Endpoint(peer, PORT)],
    )
    whereabouts = Whereabouts(
        make_finder("::", (), hints, lookup=NameLookup()),
        clock=clock,
        interval_s=INTERVAL_S,
        on_change=heartbeat.announce_now,
    )
    async with AsyncExitStack() as stack:
        for part in (datagrams, whereabouts, heartbeat):
            await stack.enter_async_context(part)
        told = None
        while True:
            known = [
                {"host": p.host, "hosts": p.heartbeat.hosts, "seen": p.host_seen}
                for p in peers.alive(clock.monotonic())
            ]
            knows = json.dumps({"hosts": whereabouts.hosts, "peers": known})
            if knows != told:
                sys.stdout.write(knows + "\n")
                sys.stdout.flush()
                told = knows
            await clock.sleep(LOOK_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
