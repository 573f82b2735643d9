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
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.values import NodeId, PeerAddress
from neuroswarm.wire.signed import Kind, Signed, sign

DEADLINE_S = 20.0
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


async def test_what_a_later_version_says_is_passed_over_and_what_is_known_kept_as_it_came():
    network = MemoryNetwork()
    mine, others = network.rpc(ANNA.node_id), network.rpc(BERT.node_id)
    heard = Listener()
    there = GossipService(
        others, listener=heard, neighbours=Neighbours(mine), clock=SystemClock(), seed=0
    )
    known = ANNA.ready()
    later = sign(Kind.READY, known.body + bytes.fromhex("c23e03") + b"new", ANNA.key)
    of_another_kind = known.to_proto()
    of_another_kind.kind = 99  # type: ignore[assignment]
    request = gossip_pb2.PushRequest(
        messages=[
            envelope_pb2.Relayed(message=message, hops_left=0)
            for message in (of_another_kind, later.to_proto())
        ]
    )
    async with others, there, mine:
        await mine.call(
            others.address, "Gossip/Push", request.SerializeToString(), timeout_s=DEADLINE_S
        )
    assert there.counters["unknown_kind"] == 1
    assert heard.heard == [later.id], "its id is over the bytes as they came"
