"""The fuzz run's inputs, given straight to what reads them: nothing but `PeerError` comes out."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter

import pytest
from fuzz_calls import Requests
from fuzz_datagrams import of_members, of_strangers
from fuzz_mutation import Mutator
from fuzz_scene import DHT_KINDS, Liar, Scene, make_key

from neuroswarm.config import DhtConfig
from neuroswarm.dht.service import DhtService
from neuroswarm.diloco.amending import read_amendment
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import BadSignature, PeerError
from neuroswarm.gossip.push import decode_push
from neuroswarm.heartbeat.datagram import decode_datagram
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.membership.received import read_record
from neuroswarm.net.datagram import CONTEXT
from neuroswarm.relay.switchboard import RelayBounds, Switchboard
from neuroswarm.rounds import statements
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.memory_network import MemoryNetwork
from neuroswarm.v1 import gossip_pb2, reach_pb2, shards_pb2, state_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire.messages import parse
from neuroswarm.wire.relaying import Attachment, decode_attachment, decode_frames
from neuroswarm.wire.signed import Kind, Signed, peek_id, sign, verify

NUM_INPUTS = int(os.environ.get("FUZZ_INPUTS", "1500"))
RULES = Rules(owner=make_key("owner").public_key.hex())
SEALER = Sealer(bytes(range(32)))
REQUESTS = {
    "Gossip/Headers": gossip_pb2.HeadersRequest,
    "Gossip/Payload": gossip_pb2.PayloadRequest,
    "Gossip/Result": gossip_pb2.ResultRequest,
    "Gossip/Lineage": gossip_pb2.LineageRequest,
    "State/Manifest": state_pb2.ManifestRequest,
    "State/Piece": state_pb2.PieceRequest,
    "Shards/Held": shards_pb2.HeldRequest,
    "Shards/Bytes": shards_pb2.BytesRequest,
    "Reach/Dial": reach_pb2.DialRequest,
    "Reach/Hello": reach_pb2.HelloRequest,
}
CALLER, VICTIM = make_key("caller"), make_key("victim")


class RelayUnderFire:
    """A switchboard to which the caller and the victim are attached, as the requests have it."""

    def __init__(self) -> None:
        self.bounds = RelayBounds(max_pipes=20, max_pipes_per_opener=8, max_buffered_bytes=10**6)
        self.board = Switchboard(self.bounds)
        self.victim = self.board.attach(VICTIM.node_id, Attachment(bytes(8), True), lambda: None)
        self.num_taken = 0

    def read(self, method: str, data: bytes) -> None:
        """Carry out one request; nothing grows beyond its bounds."""
        if method == "Relay/Attach":
            self.board.attach(CALLER.node_id, decode_attachment(data), lambda: None)
            return
        _, frames = decode_frames(data)
        line = self.board.find(CALLER.node_id)
        if line is not None:
            self.num_taken += len(frames)
            try:
                self.board.take(line, frames)
            finally:
                line.queue.take_batch()
                self.victim.queue.take_batch()
        assert self.board.num_buffered <= self.bounds.max_buffered_bytes
        assert self.board.num_pipes <= self.bounds.max_pipes_per_opener
        assert len(self.victim.queue) <= self.bounds.max_pipes


def make_liar(seed: int) -> Liar:
    mutator = Mutator(random.Random(seed))
    key = make_key("victim")
    scene = Scene(
        bytes(32), RULES.to_bytes(), bytes(32), (500, 70), sign_hello(), make_key("owner")
    )
    liar = Liar(scene, mutator)
    scene.victim = sign(
        Kind.HEARTBEAT, liar.body(Kind.HEARTBEAT).SerializeToString(), key
    ).to_proto()
    for kind in (Kind.CONFIRM, Kind.CONTRIBUTION):
        scene.heard.append(sign(kind, liar.body(kind).SerializeToString(), key).to_proto())
    return liar


def sign_hello():
    return sign(Kind.HEARTBEAT, b"", make_key("victim")).to_proto()


def read_datagram(data: bytes) -> None:
    own, heard, _ = decode_datagram(SEALER.open(data, CONTEXT))
    for record in (own, *heard):
        read_record(record)


def read_statement(signed: Signed) -> None:
    if signed.kind is Kind.AMENDMENT:
        read_amendment(signed, bytes(32), RULES)
    else:
        statements.decode(signed)


def read_push(data: bytes) -> int:
    """Statements, payloads and proofs that could be read or were refused."""
    request = decode_push(data)
    for relayed in request.messages:
        try:
            peek_id(relayed.message)
            read_statement(verify(relayed.message))
        except PeerError:
            continue
    for proof in request.proofs:
        try:
            statements.check_proof(verify(proof.first), verify(proof.second))
        except PeerError:
            continue
    return len(request.messages)


def test_datagrams_of_strangers_never_open():
    liar, kinds = make_liar(1), Counter[str]()
    real = [SEALER.seal(b"a datagram " * 30, CONTEXT) for _ in range(8)]
    opened = 0
    for data in itertools.islice(of_strangers(liar.mutator, real, kinds), NUM_INPUTS):
        try:
            SEALER.open(data, CONTEXT)
            opened += 1
            assert data in real, "whole, as it was overheard"
        except BadSignature:
            continue
    assert kinds["replayed"] <= opened < NUM_INPUTS // 5


def test_datagrams_of_members_are_read_or_refused():
    liar, kinds = make_liar(2), Counter[str]()
    real = [SEALER.seal(b"", CONTEXT)]
    read = refused = 0
    for data in itertools.islice(of_members(liar.mutator, liar, SEALER, real, kinds), NUM_INPUTS):
        try:
            read_datagram(data)
            read += 1
        except PeerError:
            refused += 1
    assert refused > read > 0


def test_dht_datagrams_of_members_are_read_or_refused():
    """Given to a node that is in the DHT: whatever comes, it goes on answering."""
    liar = make_liar(6)
    taken, sent = asyncio.run(feed_dht(liar))
    assert sum(taken.values()) == NUM_INPUTS
    assert sent > 0
    assert {"malformed", "bad_signature", "unasked"} <= taken.keys()


async def feed_dht(liar: Liar) -> tuple[Counter[str], int]:
    """What a node did with the inputs, by reason; how many datagrams it sent."""
    network, clock, key = MemoryNetwork(), FakeClock(), make_key("node in the dht")
    end = network.datagrams(Endpoint("10.0.0.1", 8101), key.node_id)
    service = DhtService(
        DhtConfig(), datagrams=end, signer=key, peers=PeerTable(key.node_id, 5.0),
        locate=lambda: end.endpoint, clock=clock,
    )  # fmt: skip
    rng, answered = liar.rng, 0
    async with end, service:
        for number in range(NUM_INPUTS):
            kind = rng.choice(DHT_KINDS) if rng.randrange(8) else rng.choice(tuple(Kind))
            message = liar.signed(kind, make_key("in the dht", number % 500))
            data = message.SerializeToString()
            if rng.randrange(3) == 0:
                data = liar.mutator.encoding(data)
            end.receive(data, Endpoint("10.0.0.2", 1 + number % 1000))
            await clock.advance(0.01)
        answered = service.num_answered
        taken = Counter(service.dropped) + Counter({"answered": answered})
        return taken, end.bytes_sent


def test_requests_of_members_are_read_or_refused():
    liar = make_liar(3)
    requests, key = Requests(liar), make_key("caller")
    refused, num_statements, relay = 0, 0, RelayUnderFire()
    for _ in range(NUM_INPUTS):
        method, data, _ = requests.make(key)
        try:
            if method in REQUESTS:
                parse(REQUESTS[method], data)
            elif method.startswith("Relay/"):
                relay.read(method, data)
            else:
                num_statements += read_push(data)
        except PeerError:
            refused += 1
    assert 0 < refused < NUM_INPUTS
    assert num_statements > NUM_INPUTS // 10
    assert relay.num_taken > 0
    assert relay.board.num_bytes > 0
    assert relay.board.num_cut > 0


@pytest.mark.parametrize("seed", [4, 5])
def test_the_same_seed_makes_the_same_inputs(seed: int):
    def made() -> list[bytes]:
        requests = Requests(make_liar(seed))
        return [requests.make(make_key("caller"))[1] for _ in range(100)]

    assert made() == made()
