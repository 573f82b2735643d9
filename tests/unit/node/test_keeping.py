"""Whose leaving is a reason for a checkpoint."""

from __future__ import annotations

import pytest

from neuroswarm.checkpoint.schedule import Risk
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.keeping import save_before_leaving
from neuroswarm.testing.speaker import SWARM, Speaker


class Checkpoints:
    """Hears of risks."""

    def __init__(self) -> None:
        self.expected: list[Risk] = []

    def expect(self, risk: Risk) -> None:
        self.expected.append(risk)


@pytest.mark.parametrize(("swarm_id", "expected"), [(SWARM, [Risk.PEER]), (b"o" * 32, [])])
def test_only_peers_of_this_swarm_are_missed(swarm_id: bytes, expected: list[Risk]):
    peers, checkpoints, anna = PeerTable(Speaker("me").node_id, 5.0), Checkpoints(), Speaker("anna")
    save_before_leaving(peers, SWARM, checkpoints)
    for sequence, is_leaving in ((1, False), (2, True)):
        told = anna.heartbeat(sequence, swarm_id=swarm_id, is_leaving=is_leaving)
        peers.observe(*told, 0.0, host_seen=None)
    assert checkpoints.expected == expected
