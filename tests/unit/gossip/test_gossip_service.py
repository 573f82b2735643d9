"""Pushes of a node that is still starting, as peers reach it before all of its parts run."""

from __future__ import annotations

from collections.abc import Sequence

from neuroswarm.clock import SystemClock
from neuroswarm.errors import PeerError
from neuroswarm.gossip.service import GossipService
from neuroswarm.rounds.statements import Proof, Statement
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.testing.memory_rpc import MemoryRpc
from neuroswarm.testing.speaker import Speaker
from neuroswarm.testing.waiting import until
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire.signed import Signed

ANNA, BERT = Speaker("anna"), Speaker("bert")


class Listener:
    """Notes what comes, and finds all of it worth relaying."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def on_statement(self, signed: Signed, statement: Statement, sender: NodeId) -> bool | Proof:
        self.heard.append(signed.id)
        return True

    def on_amendment(self, signed: Signed) -> bool:
        return False

    def on_inline(self, contribution: bytes, payload: bytes) -> None:
        raise AssertionError("nothing travels along here")

    def on_proof(self, proof: Proof) -> bool:
        return False


class Neighbours:
    """One peer."""

    def __init__(self, rpc: MemoryRpc) -> None:
        self._address = rpc.address

    def targets(self) -> Sequence[PeerAddress]:
        return [self._address]

    def answered(self, peer: NodeId, rtt_s: float) -> None:
        assert rtt_s >= 0

    def failed(self, peer: NodeId) -> None:
        raise AssertionError("it is always there")

    def misbehaved(self, peer: NodeId, error: PeerError) -> None:
        raise error


async def test_what_is_said_before_the_service_runs_is_pushed_and_so_is_what_follows():
    network = MemoryNetwork()
    mine, others = network.rpc(ANNA.node_id), network.rpc(BERT.node_id)
    heard = Listener()
    clock = SystemClock()
    here = GossipService(
        mine, listener=Listener(), neighbours=Neighbours(others), clock=clock, seed=0
    )
    there = GossipService(others, listener=heard, neighbours=Neighbours(mine), clock=clock, seed=0)
    early, late = ANNA.about(0).ready(), ANNA.about(1).ready()
    async with others, there, mine:
        here.spread(early)  # as it relays what it is pushed, from when it can be called on
        async with here:
            await until(lambda: early.id in heard.heard)
            here.spread(late)
            await until(lambda: late.id in heard.heard)
