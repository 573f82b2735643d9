from __future__ import annotations

import logging

import pytest

from neuroswarm.discovery import tracker_server
from neuroswarm.discovery.tracker_messages import open_reply, seal_request
from neuroswarm.discovery.tracker_server import TrackerDirectory
from neuroswarm.errors import BadSignature, MessageTooLarge, PeerError
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.wire import limits
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.signed import Kind, sign

SWARM = b"s" * 32
SEALER = Sealer(b"k" * 32)


class Now:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    async def sleep(self, duration_s: float) -> None:
        self.now += duration_s


def make_record(swarm_id: bytes = SWARM) -> OwnRecord:
    key = NodeKey.generate()
    heartbeat = Heartbeat(swarm_id, 0, 0.0, "10.0.0.7", 8101, 9999, 7101, 1, is_training=True)
    return OwnRecord(key, lambda: heartbeat)


def make_directory(clock: Now, record: OwnRecord | None = None) -> TrackerDirectory:
    me = (record or make_record()).node_id
    return TrackerDirectory(PeerTable(me, 5.0), sealer=SEALER, clock=clock, record=record)


def ask(directory: TrackerDirectory, record: OwnRecord, sealer: Sealer = SEALER) -> set[bytes]:
    request = seal_request(sealer, record.make(0.0))
    reply = open_reply(sealer, request, directory.handle(request, "10.0.0.7"))
    assert reply.observed_host == "10.0.0.7"
    return {signed.signer for signed, _ in reply.records}


def test_each_asker_learns_of_the_others_and_of_the_tracker_itself():
    own, a, b = make_record(), make_record(), make_record()
    directory = make_directory(Now(), own)
    assert ask(directory, a) == {own.node_id}
    assert ask(directory, b) == {own.node_id, a.node_id}
    assert ask(directory, a) == {own.node_id, b.node_id}
    assert directory.num_answered == 3


def test_a_bare_tracker_lists_only_nodes_of_the_askers_swarm():
    a, b, stranger = make_record(), make_record(), make_record(b"o" * 32)
    directory = make_directory(Now())
    assert ask(directory, a) == set()
    assert ask(directory, stranger) == set()
    assert ask(directory, b) == {a.node_id}


def test_a_banned_node_is_told_nothing():
    own, a, b = make_record(), make_record(), make_record()
    directory = make_directory(Now(), own)
    ask(directory, a)
    directory._peers.ban(b.node_id, "a test", None)
    with pytest.raises(PeerError, match=f"banned: {b.node_id}"):
        ask(directory, b)
    assert directory.num_refused == 1


def test_a_silent_node_is_no_longer_listed():
    clock, a, b = Now(), make_record(), make_record()
    directory = make_directory(clock)
    ask(directory, a)
    clock.now = 15.1
    assert ask(directory, b) == set()


def test_a_reply_names_at_most_256_peers():
    clock = Now()
    directory = make_directory(clock, make_record())
    for _ in range(limits.MAX_TRACKER_PEERS + 5):
        clock.now += 0.01
        request = seal_request(SEALER, make_record().make(0.0))
        directory.handle(request, f"10.0.{clock.now}")
    assert len(ask(directory, make_record())) == limits.MAX_TRACKER_PEERS


def test_another_token_is_refused_and_said_once_a_minute(caplog):
    caplog.set_level(logging.WARNING)
    clock = Now()
    directory = make_directory(clock)
    for second in (0.0, 1.0, 59.0, 61.0):
        clock.now = second
        with pytest.raises(BadSignature):
            ask(directory, make_record(), Sealer(b"x" * 32))
    assert [r.getMessage() for r in caplog.records] == [
        "tracker refused 10.0.0.7: another swarm token (1 refused since the last such line)",
        "tracker refused 10.0.0.7: another swarm token (3 refused since the last such line)",
    ]
    assert directory.num_refused == 4


def test_a_reply_opens_as_an_answer_to_its_own_request_only():
    directory, asker = make_directory(Now()), make_record()
    first, second = (seal_request(SEALER, asker.make(0.0)) for _ in range(2))
    reply = directory.handle(first, "10.0.0.7")
    open_reply(SEALER, first, reply)
    with pytest.raises(BadSignature):
        open_reply(SEALER, second, reply)


def test_only_a_heartbeat_is_a_record():
    key = NodeKey.generate()
    request = seal_request(SEALER, sign(Kind.SKIP, b"", key))
    with pytest.raises(PeerError, match="not a heartbeat: skip"):
        make_directory(Now()).handle(request, "10.0.0.7")


def test_a_body_above_the_limit_is_not_opened():
    with pytest.raises(MessageTooLarge):
        make_directory(Now()).handle(b"x" * (limits.MAX_TRACKER_BODY_BYTES + 1), "10.0.0.7")


def test_an_address_that_asks_too_often_is_refused_and_others_are_not():
    directory = make_directory(Now())
    for _ in range(tracker_server.BURST):
        ask(directory, make_record())
    with pytest.raises(PeerError, match=r"too many tracker requests from 10\.0\.0\.7"):
        ask(directory, make_record())
    directory.handle(seal_request(SEALER, make_record().make(0.0)), "10.0.0.8")
