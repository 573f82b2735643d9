"""A swarm changes its token without a stop, one node after the other, as docs/tokens.md tells."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.discovery.tracker_messages import open_reply, open_request, seal_reply, seal_request
from neuroswarm.errors import AdmissionError, BadSignature, PeerUnreachable
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import MAX_ACCEPTED, TokenRing
from neuroswarm.node.carriers import NetworkCarriers
from neuroswarm.values import Endpoint, NodeId
from neuroswarm.wire.signed import Kind, sign

OLD, NEW = SwarmToken(bytes(range(32))), SwarmToken(bytes(range(1, 33)))
BEFORE = TokenRing(OLD)
ACCEPTS_NEW = TokenRing.of(OLD, [NEW])
USES_NEW = TokenRing.of(NEW, [OLD])
AFTER = TokenRing(NEW)
STEPS = (BEFORE, ACCEPTS_NEW, USES_NEW, AFTER)
CONFIG = SwarmNodeConfig(
    network={"host": "127.0.0.1", "port": 0, "grpc_port": 0}, heartbeat={"port": 0}
)


class Node:
    """A node's transports: gRPC and UDP, on real sockets."""

    def __init__(self, key: NodeKey, tokens: TokenRing) -> None:
        self.key = key
        self.carriers = NetworkCarriers(key, tokens, CONFIG)
        self.carriers.rpc.serve_unary("Test/Echo", self.echo)
        self.carriers.datagrams.on_datagram(self.take)
        self.got: list[bytes] = []
        self.has_got = asyncio.Event()

    async def echo(self, _caller: NodeId, request: bytes) -> bytes:
        return request

    def take(self, data: bytes, _source: Endpoint) -> None:
        self.got.append(data)
        self.has_got.set()

    async def call(self, other: Node) -> bytes:
        peer = other.carriers.rpc.address
        return await self.carriers.rpc.call(peer, "Test/Echo", b"hello", timeout_s=10)

    async def tell(self, other: Node) -> None:
        other.has_got.clear()
        self.carriers.datagrams.send(other.carriers.heartbeat_endpoint, self.key.public_key)
        await asyncio.wait_for(other.has_got.wait(), 10)
        assert other.got[-1] == self.key.public_key


async def require_all_talk(rings: Sequence[TokenRing]) -> None:
    async with AsyncExitStack() as stack:
        nodes = [Node(NodeKey.generate(), ring) for ring in rings]
        for node in nodes:
            await stack.enter_async_context(node.carriers)
        for one, other in itertools.permutations(nodes, 2):
            assert await one.call(other) == b"hello"
            await one.tell(other)


@pytest.mark.parametrize("num_done", range(4), ids=lambda n: f"{n} of 3 nodes done")
@pytest.mark.parametrize("step", [1, 2, 3])
async def test_all_talk_in_every_step_and_between_them(step: int, num_done: int):
    """Three nodes are restarted one by one from each step to the next."""
    await require_all_talk([STEPS[step] if i < num_done else STEPS[step - 1] for i in range(3)])


async def test_a_node_with_only_the_old_token_is_refused_in_the_end_and_says_why(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.WARNING)
    member, other_member, late = (Node(NodeKey.generate(), ring) for ring in (AFTER, AFTER, BEFORE))
    async with member.carriers, other_member.carriers, late.carriers:
        for one, other in ((late, member), (member, late)):
            with pytest.raises(PeerUnreachable, match="uses another swarm token"):
                await one.call(other)
        late.carriers.datagrams.send(member.carriers.heartbeat_endpoint, b"hello")
        await other_member.tell(member)
    assert member.got == [other_member.key.public_key]
    assert member.carriers.datagrams.num_dropped == 1
    assert any("give all nodes of a swarm the same token" in text for text in caplog.messages)
    assert any("datagrams with another swarm token dropped" in text for text in caplog.messages)


async def test_skipping_the_first_step_splits_the_swarm():
    """Why there are three: who uses the new token is not accepted by who does not know it."""
    hasty, other = Node(NodeKey.generate(), USES_NEW), Node(NodeKey.generate(), BEFORE)
    async with hasty.carriers, other.carriers:
        with pytest.raises(PeerUnreachable, match="uses another swarm token"):
            await other.call(hasty)
        with pytest.raises(PeerUnreachable):
            await hasty.call(other)


@pytest.mark.parametrize(("asker", "tracker"), list(itertools.pairwise(STEPS)))
def test_a_tracker_and_a_node_one_step_apart_open_what_each_other_sealed(
    asker: TokenRing, tracker: TokenRing
):
    for one, other in ((asker, tracker), (tracker, asker)):
        key = NodeKey.generate()
        request = seal_request(one.sealer, sign(Kind.SKIP, b"", key))
        with pytest.raises(Exception, match="not a heartbeat"):  # opened, verified, then refused
            open_request(other.sealer, request)
        reply = seal_reply(other.sealer, request, [], "10.0.0.7")
        assert open_reply(one.sealer, request, reply).observed_host == "10.0.0.7"


def test_a_tracker_two_steps_apart_refuses():
    request = seal_request(BEFORE.sealer, sign(Kind.SKIP, b"", NodeKey.generate()))
    with pytest.raises(BadSignature):
        open_request(AFTER.sealer, request)


def test_a_ring_is_read_from_files_without_doubles(tmp_path: Path):
    files = [tmp_path / name for name in ("old", "new", "again")]
    for file, token in zip(files, (OLD, NEW, NEW), strict=True):
        file.write_text(token.text + "\n")
    ring = TokenRing.read(OLD, files)
    assert ring == ACCEPTS_NEW
    assert ring.fingerprints == [OLD.fingerprint, NEW.fingerprint]
    assert not ring.is_open
    assert TokenRing.of(NEW, [SwarmToken.OPEN]).is_open


def test_the_word_open_stands_for_the_token_of_open_swarms(tmp_path: Path):
    (tmp_path / "old").write_text("open\n")
    assert TokenRing.read(NEW, [tmp_path / "old"]) == TokenRing(NEW, (SwarmToken.OPEN,))


def test_too_many_or_damaged_tokens_are_refused(tmp_path: Path):
    tokens = [SwarmToken(bytes([i]) * 32) for i in range(MAX_ACCEPTED + 2)]
    with pytest.raises(AdmissionError, match=f"limit {MAX_ACCEPTED}"):
        TokenRing.of(tokens[0], tokens[1:])
    (tmp_path / "token").write_text("nswarm-")
    with pytest.raises(AdmissionError, match="malformed swarm token"):
        TokenRing.read(OLD, [tmp_path / "token"])
