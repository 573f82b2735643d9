import pytest

from neuroswarm.discovery.probe_desk import BURST, ProbeDesk
from neuroswarm.errors import BadSignature, PeerError
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits, probes
from neuroswarm.wire.heartbeats import Heartbeat

SEALER = Sealer(b"k" * 32)
OWN = Heartbeat(b"s" * 32, 0, 0.0, "10.0.0.7", 8101, 9999, 7101, 1, is_training=True)


def make_desk(clock: FakeClock, num_peers: int, *, is_node: bool = True) -> ProbeDesk:
    peers = PeerTable(NodeKey.generate().node_id, 5.0)
    for number in range(num_peers):
        beat = Heartbeat(
            b"s" * 32, 0, 0.0, f"10.0.1.{number}", 8102, 9998, 7102, 1, is_training=True
        )
        signed = OwnRecord(NodeKey.generate(), lambda beat=beat: beat).make(clock.wall())
        assert peers.observe(signed, beat, clock.monotonic(), host_seen=None)
    describe = (lambda: OWN) if is_node else None
    return ProbeDesk(peers, sealer=SEALER, clock=clock, describe=describe)


def ask(desk: ProbeDesk, **sizes: int) -> probes.ProbeReply:
    request = probes.seal_probe(SEALER, **sizes)
    return probes.open_probe_reply(SEALER, request, desk.handle(request, "10.0.0.9"))


def test_a_node_tells_time_ports_and_some_peers():
    clock = FakeClock()
    reply = ask(make_desk(clock, 9))
    assert reply.time == clock.wall()
    assert reply.observed == Endpoint("10.0.0.9", 0)
    assert (reply.grpc_port, reply.heartbeat_port) == (8101, 9999)
    assert len(reply.peers) == len(set(reply.peers)) == limits.MAX_PROBE_PEERS
    assert {(p.http_port, p.grpc_port, p.heartbeat_port) for p in reply.peers} == {
        (7102, 8102, 9998)
    }


def test_a_bare_tracker_has_no_ports_and_nobody_is_remembered():
    desk = make_desk(FakeClock(), 0, is_node=False)
    for _ in range(2):
        reply = ask(desk, answer_bytes=limits.MAX_PROBE_BYTES)
        assert (reply.grpc_port, reply.heartbeat_port, reply.peers) == (0, 0, ())


def test_strangers_and_those_who_ask_too_often_are_refused():
    desk = make_desk(FakeClock(), 0)
    with pytest.raises(BadSignature):
        desk.handle(probes.seal_probe(Sealer(b"x" * 32)), "10.0.0.9")
    for _ in range(int(BURST) - 1):
        ask(desk)
    with pytest.raises(PeerError, match=r"too many probes from 10\.0\.0\.9"):
        ask(desk)
