"""A node that listens to IPv4 and IPv6 joins nodes that have one of them only."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from start_scene import known_to

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.token import SwarmToken
from neuroswarm.listening import bind
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.workload import Workload
from neuroswarm.testing.swarm import SETTINGS
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.testing.waiting import until
from neuroswarm.values import Endpoint

WITHIN_S = 120.0


def has_v6() -> bool:
    try:
        bind(socket.SOCK_DGRAM, Endpoint("::1", 0)).close()
    except OSError:
        return False
    return True


def make_node(folder: Path, host: str, token: SwarmToken, **network: object) -> NodeCore:
    config = SwarmNodeConfig(
        **{**SETTINGS, "heartbeat": {"interval_s": 0.5, "port": 0}},
        network={"host": host, "port": 0, "grpc_port": 0, "lan": False, **network},
        state_dir=folder,
    )
    return NodeCore(config, token, Workload(TinyModel(), tiny_text()), Surroundings())


@pytest.mark.slow
@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.skipif(not has_v6(), reason="this machine has no IPv6")
async def test_nodes_with_one_kind_each_get_their_state_from_one_with_both(tmp_path: Path):
    token = SwarmToken.new()
    both = make_node(tmp_path / "both", "::", token, announce_host="127.0.0.1,::1")
    nodes = [both]
    try:
        await both.start()
        parts = both.require_parts()
        port = parts.carriers.heartbeat_endpoint.port
        for host in ("127.0.0.1", "::1"):
            peer = str(Endpoint(host, port))
            nodes.append(make_node(tmp_path / host.replace(":", "_"), host, token, peers=peer))
            await nodes[-1].start()
        everyone = {node.require_parts().home.key.node_id for node in nodes}
        await until(lambda: known_to(both) == everyone, within_s=WITHIN_S)
        digests = {node.require_parts().replica.state.digest for node in nodes}
        assert digests == {parts.replica.state.digest}
        assert all(peer.is_proven_there for peer in parts.rounds.crowd.live())
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
