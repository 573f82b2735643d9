from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from neuroswarm.membership.fanout import fanout
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import FORGET_INTERVALS, PeerTable
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.heartbeats import Heartbeat, decode_heartbeat
from neuroswarm.wire.signed import Kind, Signed, verify

INTERVAL_S = 5.0
SWARM = b"s" * 32
ME = NodeId.of_key(b"m" * 32)


def record(sequence: int = 1, **changes: object) -> Heartbeat:
    fields: dict[str, object] = {
        "swarm_id": SWARM,
        "sequence": sequence,
        "time": 0.0,
        "host": "10.0.0.7",
        "grpc_port": 8101,
        "heartbeat_port": 9999,
        "http_port": 7101,
        "protocol": 1,
        "is_training": True,
    }
    return Heartbeat(**(fields | changes))  # type: ignore[arg-type]


def statement(name: bytes, heartbeat: Heartbeat) -> Signed:
    """A statement as if verified; the table never looks at signatures."""
    return Signed(Kind.HEARTBEAT, heartbeat.encode(), name * 32, b"\0" * 64)


def node(name: bytes) -> NodeId:
    return NodeId.of_key(name * 32)


def observe(
    table: PeerTable, name: bytes, now: float, heartbeat: Heartbeat, host: str | None = None
) -> bool:
    return table.observe(statement(name, heartbeat), heartbeat, now, host_seen=host)


@pytest.fixture
def table() -> PeerTable:
    return PeerTable(ME, INTERVAL_S)


def ids(peers: list) -> list[NodeId]:
    return [peer.node_id for peer in peers]


def test_a_newer_record_replaces_and_an_older_one_is_no_news(table):
    assert observe(table, b"a", 0.0, record(5, round=1))
    assert not observe(table, b"a", 1.0, record(5, round=2))
    assert not observe(table, b"a", 1.0, record(4, round=3))
    assert observe(table, b"a", 1.0, record(6, round=4))
    assert table.get(node(b"a")).heartbeat.round == 4
    assert len(table) == 1


def test_a_replayed_record_is_no_sign_of_life(table):
    observe(table, b"a", 0.0, record(1))
    observe(table, b"a", 14.0, record(1))
    assert table.alive(3 * INTERVAL_S + 0.1) == []


def test_a_node_is_never_its_own_peer(table):
    heartbeat = record()
    mine = Signed(Kind.HEARTBEAT, heartbeat.encode(), b"m" * 32, b"\0" * 64)
    assert not table.observe(mine, heartbeat, 0.0, host_seen=None)
    table.ban(ME, "a lie", None)
    assert not table.is_banned(ME, 0.0)


def test_three_silent_intervals_end_a_life_and_a_message_renews_it(table):
    observe(table, b"a", 0.0, record())
    assert ids(table.alive(3 * INTERVAL_S)) == [node(b"a")]
    assert table.alive(3 * INTERVAL_S + 0.1) == []
    table.touch(node(b"a"), 16.0)
    assert table.is_alive(node(b"a"), 16.0 + 3 * INTERVAL_S)
    table.touch(node(b"z"), 16.0)
    assert table.get(node(b"z")) is None


def test_a_suspected_peer_has_less_time_until_it_is_heard_again(table):
    observe(table, b"a", 0.0, record(1))
    table.suspect(node(b"a"))
    assert table.is_alive(node(b"a"), 1.5 * INTERVAL_S)
    assert not table.is_alive(node(b"a"), 1.5 * INTERVAL_S + 0.1)
    observe(table, b"a", 8.0, record(2))
    assert table.is_alive(node(b"a"), 8.0 + 3 * INTERVAL_S)


def test_a_leaving_peer_is_gone_at_once_and_may_come_back(table):
    observe(table, b"a", 0.0, record(1))
    assert observe(table, b"a", 1.0, record(2, is_leaving=True))
    assert table.alive(1.0) == []
    table.touch(node(b"a"), 1.5)
    assert table.alive(1.5) == []
    assert observe(table, b"a", 2.0, record(3))
    assert ids(table.alive(2.0)) == [node(b"a")]


def test_peers_are_listed_by_id_swarm_and_role(table):
    for name in (b"a", b"b", b"c", b"d"):
        observe(table, name, 0.0, record())
    observe(table, b"e", 0.0, record(is_training=False))
    observe(table, b"f", 0.0, record(swarm_id=b"o" * 32))
    everyone = sorted(node(name) for name in (b"a", b"b", b"c", b"d", b"e", b"f"))
    assert ids(table.alive(0.0)) == everyone
    assert ids(table.all(1e9)) == everyone
    assert node(b"f") not in ids(table.alive(0.0, SWARM))
    assert ids(table.training(0.0, SWARM)) == sorted(node(n) for n in (b"a", b"b", b"c", b"d"))


def test_a_banned_peer_is_in_no_list_until_the_ban_ends(table):
    observe(table, b"a", 0.0, record(1))
    table.ban(node(b"a"), "equivocation", 10.0)
    assert table.alive(1.0) == []
    assert table.all(1.0) == []
    assert not table.is_alive(node(b"a"), 1.0)
    assert not observe(table, b"a", 2.0, record(2))
    assert table.bans(2.0)[node(b"a")].reason == "equivocation"
    assert ids(table.alive(10.0)) == [node(b"a")]
    assert table.bans(10.0) == {}


def test_a_ban_for_good_outlasts_a_later_shorter_one(table):
    table.ban(node(b"a"), "proof", None)
    table.ban(node(b"a"), "rude", 10.0)
    table.expire(1e9)
    assert table.is_banned(node(b"a"), 1e9)
    assert table.bans(1e9)[node(b"a")].reason == "proof"


def test_bans_are_bounded_and_the_one_that_ends_first_goes():
    table = PeerTable(ME, INTERVAL_S, max_peers=2)
    table.ban(node(b"a"), "first", 50.0)
    table.ban(node(b"b"), "second", None)
    table.ban(node(b"c"), "third", 60.0)
    assert set(table.bans(0.0)) == {node(b"b"), node(b"c")}


def test_the_dead_are_forgotten_but_not_their_sequence(table):
    observe(table, b"a", 0.0, record(7))
    limit_s = FORGET_INTERVALS * INTERVAL_S
    assert table.expire(limit_s) == []
    assert ids(table.expire(limit_s + 0.1)) == [node(b"a")]
    assert table.get(node(b"a")) is None
    assert not observe(table, b"a", limit_s + 1, record(7))
    assert observe(table, b"a", limit_s + 1, record(8))


def test_a_full_table_takes_a_newcomer_only_in_place_of_a_dead_peer():
    table = PeerTable(ME, INTERVAL_S, max_peers=2)
    observe(table, b"a", 0.0, record())
    observe(table, b"b", 10.0, record())
    assert not observe(table, b"c", 11.0, record())
    assert observe(table, b"c", 16.0, record())
    assert {peer.node_id for peer in table.all(16.0)} == {node(b"b"), node(b"c")}


def test_the_round_trip_is_smoothed(table):
    observe(table, b"a", 0.0, record())
    table.record_rtt(node(b"a"), 0.080)
    assert table.get(node(b"a")).rtt_s == 0.080
    table.record_rtt(node(b"a"), 0.160)
    assert table.get(node(b"a")).rtt_s == pytest.approx(0.080 + 0.080 / 8)


@pytest.mark.parametrize(
    ("announced", "seen", "expected"),
    [
        ("10.0.0.7", "192.168.1.1", "10.0.0.7"),
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "192.168.1.1", "192.168.1.1"),
        ("0.0.0.0", "192.168.1.1", "192.168.1.1"),
        ("localhost", "10.0.0.9", "10.0.0.9"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("node.example", "10.0.0.9", "node.example"),
    ],
)
def test_a_peer_that_announces_loopback_is_reached_where_it_was_seen(
    table, announced, seen, expected
):
    observe(table, b"a", 0.0, record(host=announced), seen)
    peer = table.get(node(b"a"))
    assert peer.address.endpoint == Endpoint(expected, 8101)
    assert peer.heartbeat_endpoint == Endpoint(expected, 9999)


def test_hearsay_does_not_erase_where_a_peer_was_seen(table):
    observe(table, b"a", 0.0, record(1, host="127.0.0.1"))
    observe(table, b"a", 0.1, record(1, host="127.0.0.1"), "10.0.0.9")
    assert table.get(node(b"a")).host == "10.0.0.9"
    observe(table, b"a", 0.2, record(2, host="127.0.0.1"))
    assert table.get(node(b"a")).host == "10.0.0.9"


@pytest.mark.parametrize(
    ("num_known", "expected"), [(0, 3), (1, 5), (3, 6), (4, 7), (40, 15), (552, 49), (553, 50)]
)
def test_the_fanout_grows_with_the_root_and_is_bounded(num_known, expected):
    assert fanout(num_known) == expected
    assert fanout(num_known) == min(int(2 * num_known**0.5) + 3, 50)


class Key:
    """A real key, as small as `OwnRecord` needs it."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
        self.public_key = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def test_own_records_verify_and_grow_within_and_across_restarts():
    first = OwnRecord(Key(), lambda: record(99, round=3), incarnation=0)
    signed = [first.make(1.0), first.make(2.0)]
    first.leave()
    signed.append(first.make(3.0))
    later = OwnRecord(Key(), lambda: record(0), incarnation=1).make(0.5)
    bodies = [decode_heartbeat(verify(s.to_proto()).body) for s in (*signed, later)]
    sequences = [body.sequence for body in bodies]
    assert sequences == sorted(set(sequences))
    assert [body.time for body in bodies] == [1.0, 2.0, 3.0, 0.5]
    assert [body.is_leaving for body in bodies] == [False, False, True, False]
    assert bodies[0].round == 3
    assert first.describe().sequence == first.sequence == sequences[2]
    assert signed[0].signer == first.node_id


@pytest.mark.parametrize("incarnation", [-1, 2**23])
def test_an_incarnation_out_of_range_is_refused(incarnation):
    with pytest.raises(ValueError, match="incarnation out of range"):
        OwnRecord(Key(), record, incarnation=incarnation)
