"""Who has no token gets nowhere: refused in words on both sides, and nothing of it is parsed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from neuroswarm.errors import ConfigError, PeerUnreachable, ProtocolViolation
from neuroswarm.identity.certificate import NodeCredentials, get_host_name, issue
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.membership.door import CallerLimits, Door
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.datagram import CONTEXT, UdpTransport
from neuroswarm.net.grpc_settings import CallBounds
from neuroswarm.net.grpc_transport import GrpcTransport
from neuroswarm.service import State
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.values import Endpoint, NodeId, PeerAddress

TOKEN = SwarmToken(bytes(range(32)))
OTHER = SwarmToken(bytes(32))
FREE = Endpoint("127.0.0.1", 0)


class Bob:
    """A node that notes who got through to its handlers."""

    def __init__(self, bounds: CallBounds | None = None) -> None:
        self.key = NodeKey.generate()
        self.callers: list[NodeId] = []
        self.release = asyncio.Event()
        self.num_waiting = 0
        self.is_full = asyncio.Event()
        self.rpc = GrpcTransport(issue(TOKEN, self.key), FREE, bounds=bounds)
        self.rpc.serve_unary("Test/Echo", self.echo)
        self.rpc.serve_unary("Test/Wait", self.wait)
        self.rpc.serve_unary("Test/Bug", self.fail)

    async def echo(self, caller: NodeId, request: bytes) -> bytes:
        self.callers.append(caller)
        return request

    async def wait(self, _caller: NodeId, request: bytes) -> bytes:
        self.num_waiting += 1
        if self.num_waiting == 2:
            self.is_full.set()
        await self.release.wait()
        return request

    async def fail(self, _caller: NodeId, _request: bytes) -> bytes:
        raise KeyError("a bug")


@pytest.fixture
async def bob() -> AsyncIterator[Bob]:
    bob = Bob()
    async with bob.rpc:
        yield bob


def make_rpc(token: SwarmToken, clock: FakeClock | None = None) -> GrpcTransport:
    return GrpcTransport(issue(token, NodeKey.generate()), FREE, clock=clock)


async def test_wrong_token_is_refused_on_grpc_with_one_line_a_minute(
    bob: Bob, caplog: pytest.LogCaptureFixture
):
    clock = FakeClock()
    async with make_rpc(OTHER, clock) as stranger:
        for _ in range(3):
            with pytest.raises(PeerUnreachable, match="uses another swarm token"):
                await stranger.call(bob.rpc.address, "Test/Echo", b"", timeout_s=5)
        lines = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert lines == [
            (
                f"{bob.rpc.endpoint} uses another swarm token than this node: call refused (1 in "
                "the last minute); give all nodes of a swarm the same token"
            )
        ]
        await clock.advance(60)
        with pytest.raises(PeerUnreachable):
            await stranger.call(bob.rpc.address, "Test/Echo", b"", timeout_s=5)
        lines = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(lines) == 2
        assert "3 in the last minute" in lines[1]
    assert bob.callers == []


@pytest.mark.parametrize("has_certificate", [False, True], ids=["none", "of another token"])
async def test_server_refuses_a_client_that_accepts_every_server(
    bob: Bob, tmp_path: Path, has_certificate: bool
):
    """The refusal is the server's own: this client checks nothing."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if has_certificate:
        credentials = issue(OTHER, NodeKey.generate())
        file = tmp_path / "client.pem"
        file.write_bytes(credentials.key_pem + credentials.certificate_pem)
        context.load_cert_chain(file)
    reader, writer = await asyncio.open_connection(*bob.rpc.endpoint, ssl=context)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):  # noqa: PT012  (read until refused)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while await asyncio.wait_for(reader.read(1000), 5):
            pass
        raise ConnectionResetError("closed without a word")
    writer.transport.abort()
    assert bob.callers == []


async def test_plain_bytes_at_the_port_do_no_harm(bob: Bob):
    reader, writer = await asyncio.open_connection(*bob.rpc.endpoint)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 10)
    await asyncio.wait_for(reader.read(), 5)
    writer.transport.abort()
    async with make_rpc(TOKEN) as member:
        assert await member.call(bob.rpc.address, "Test/Echo", b"x", timeout_s=5) == b"x"
    assert bob.callers == [member.address.node_id]


def make_impostor(victim: NodeKey) -> NodeCredentials:
    """What a member can make to look like another node: its host name, but not its key."""
    own = NodeKey.generate()
    own.node_id = victim.node_id  # so that the certificate carries the victim's host name
    return issue(TOKEN, own)


async def test_member_cannot_answer_in_anothers_place(bob: Bob):
    victim = bob.key
    impostor = GrpcTransport(make_impostor(victim), FREE)
    asked: list[NodeId] = []

    async def answer(caller: NodeId, _request: bytes) -> bytes:
        asked.append(caller)
        return b"forged"

    async def answer_many(_caller: NodeId, _request: bytes) -> AsyncIterator[bytes]:
        yield b"forged"

    impostor.serve_unary("Test/Echo", answer)
    impostor.serve_stream("Test/Many", answer_many)
    async with impostor, make_rpc(TOKEN) as alice:
        address = PeerAddress(victim.node_id, impostor.endpoint)
        with pytest.raises(PeerUnreachable, match="another member answered in its place"):
            await alice.call(address, "Test/Echo", b"", timeout_s=5)
        with pytest.raises(PeerUnreachable, match="another member answered in its place"):
            await anext(alice.stream(address, "Test/Many", b"", timeout_s=5))
        with pytest.raises(PeerUnreachable, match="another member answered in its place"):
            await alice.call(address, "Test/Nothing", b"", timeout_s=5)
        assert asked == [alice.address.node_id], "its host name passed TLS, so the proof decided"
        assert get_host_name(victim.node_id).startswith(victim.node_id.hex())


async def test_caller_with_a_copied_identity_is_not_taken_for_it(bob: Bob):
    """The certificate of a member that claims Bob's key with a signature of its own."""
    victim = NodeKey.generate()
    thief = NodeKey.generate()
    thief.public_key = victim.public_key
    thief.node_id = victim.node_id
    async with GrpcTransport(issue(TOKEN, thief), FREE) as rpc:
        with pytest.raises(PeerUnreachable):  # an answer is proven to proven callers only
            await rpc.call(bob.rpc.address, "Test/Echo", b"", timeout_s=5)
    assert bob.callers == []


async def test_caller_above_its_bound_is_told_that_the_node_is_busy():
    bob = Bob(CallBounds(max_calls_per_caller=2))
    async with bob.rpc, make_rpc(TOKEN) as alice, make_rpc(TOKEN) as carol:
        peer = bob.rpc.address
        waiting = [
            asyncio.ensure_future(alice.call(peer, "Test/Wait", b"x", timeout_s=10))
            for _ in range(2)
        ]
        await asyncio.wait_for(bob.is_full.wait(), 5)
        assert await carol.call(peer, "Test/Echo", b"free", timeout_s=5) == b"free"
        other_connection = GrpcTransport(alice._credentials, FREE)
        async with other_connection:
            with pytest.raises(PeerUnreachable, match="busy"):
                await other_connection.call(peer, "Test/Echo", b"", timeout_s=5)
        bob.release.set()
        assert await asyncio.gather(*waiting) == [b"x", b"x"]
        assert await alice.call(peer, "Test/Echo", b"again", timeout_s=5) == b"again"


async def test_least_recently_used_channel_gives_way_and_busy_ones_stay():
    bounds = CallBounds(max_channels=2)
    nodes = [Bob() for _ in range(3)]
    alice = GrpcTransport(issue(TOKEN, NodeKey.generate()), FREE, bounds=bounds)
    async with nodes[0].rpc, nodes[1].rpc, nodes[2].rpc, alice:
        for node in nodes * 2:
            assert await alice.call(node.rpc.address, "Test/Echo", b"x", timeout_s=5) == b"x"
        waiting = []
        for node in nodes[:2]:
            node.num_waiting = 1
            call = alice.call(node.rpc.address, "Test/Wait", b"y", timeout_s=10)
            waiting.append(asyncio.ensure_future(call))
            await asyncio.wait_for(node.is_full.wait(), 5)
        with pytest.raises(PeerUnreachable, match="all 2 channels are in use"):
            await alice.call(nodes[2].rpc.address, "Test/Echo", b"", timeout_s=5)
        for node in nodes:
            node.release.set()
        assert await asyncio.gather(*waiting) == [b"y", b"y"]
        await alice.call(nodes[2].rpc.address, "Test/Echo", b"", timeout_s=5)


async def test_bug_in_a_handler_fails_the_service_and_tells_the_caller_nothing(bob: Bob):
    async with make_rpc(TOKEN) as alice:
        with pytest.raises(ProtocolViolation, match="refused Test/Bug: internal error"):
            await alice.call(bob.rpc.address, "Test/Bug", b"", timeout_s=5)
    with pytest.raises(BaseExceptionGroup) as caught:
        await bob.rpc.wait_closed()
    assert caught.group_contains(KeyError)
    assert bob.rpc.state is State.FAILED


async def test_port_in_use_is_named(bob: Bob):
    with pytest.raises(ConfigError, match=str(bob.rpc.endpoint.port)):
        await GrpcTransport(issue(TOKEN, NodeKey.generate()), bob.rpc.endpoint).start()
    async with make_udp(TOKEN) as udp:
        with pytest.raises(ConfigError, match=f"{udp.endpoint.port}.*in use"):
            await UdpTransport(Sealer(TOKEN.datagram_key), udp.endpoint).start()


def make_udp(token: SwarmToken, clock: FakeClock | None = None) -> UdpTransport:
    return UdpTransport(Sealer(token.datagram_key), FREE, clock=clock)


class Inbox:
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.changed = asyncio.Event()

    def take(self, data: bytes, _source: Endpoint) -> None:
        self.got.append(data)
        self.changed.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.changed.wait(), 5)
        self.changed.clear()


async def test_wrong_token_is_dropped_on_udp_with_one_line_a_minute(
    caplog: pytest.LogCaptureFixture,
):
    clock, inbox = FakeClock(), Inbox()
    receiver = make_udp(TOKEN, clock)
    receiver.on_datagram(inbox.take)
    async with receiver, make_udp(OTHER) as stranger, make_udp(TOKEN) as member:
        for _ in range(3):
            stranger.send(receiver.endpoint, b"let me in")
        member.send(receiver.endpoint, b"hello")
        await inbox.wait()
        assert inbox.got == [b"hello"]
        assert receiver.num_dropped == 3
        await clock.advance(60)
        stranger.send(receiver.endpoint, b"let me in")
        member.send(receiver.endpoint, b"hello")
        await inbox.wait()
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == [
        "datagrams with another swarm token dropped: 1, the last from 127.0.0.1",
        "datagrams with another swarm token dropped: 3, the last from 127.0.0.1",
    ]


async def test_datagrams_that_are_no_datagrams_never_reach_the_handler():
    """Raw bytes: empty, short, random, too long, and sealed for another purpose."""
    inbox, receiver = Inbox(), make_udp(TOKEN)
    receiver.on_datagram(inbox.take)
    sealer = Sealer(TOKEN.datagram_key)
    junk = [
        b"",
        b"\0",
        bytes(range(256)),
        bytes(60_000),
        sealer.seal(bytes(1161), CONTEXT),
        sealer.seal(b"tracker request", b"another purpose"),
        sealer.seal(b"damaged", CONTEXT)[:-1],
    ]
    loop = asyncio.get_running_loop()
    async with receiver, make_udp(TOKEN) as member:
        raw, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=receiver.endpoint
        )
        for data in junk:
            raw.sendto(data)
        raw.close()
        member.send(receiver.endpoint, b"hello")
        await inbox.wait()
    assert inbox.got == [b"hello"]
    assert receiver.num_dropped == len([data for data in junk if data]), "asyncio sends no b''"


async def test_host_names_are_looked_up_and_unknown_ones_are_lost_in_silence():
    inbox, receiver = Inbox(), make_udp(TOKEN)
    receiver.on_datagram(inbox.take)
    async with receiver, make_udp(TOKEN) as member:
        member.send(Endpoint("no-such-host.invalid", 9), b"lost")
        for word in (b"first", b"second"):
            member.send(Endpoint("localhost", receiver.endpoint.port), word)
            await inbox.wait()
    assert inbox.got == [b"first", b"second"]


async def test_a_name_that_is_unknown_is_not_looked_up_again_at_once():
    clock, inbox, receiver = FakeClock(), Inbox(), make_udp(TOKEN)
    receiver.on_datagram(inbox.take)
    async with receiver, make_udp(TOKEN, clock) as member:
        nowhere = Endpoint("no-such-host.invalid", 9)
        member.send(nowhere, b"lost")
        member.send(Endpoint("localhost", receiver.endpoint.port), b"looked up after the other")
        await inbox.wait()
        member.send(nowhere, b"lost")
        assert member._unresolved.empty()
        await clock.advance(10.0)
        member.send(nowhere, b"lost")
        assert not member._unresolved.empty()


async def test_bug_in_the_datagram_handler_fails_the_service():
    def fail(_data: bytes, _source: Endpoint) -> None:
        raise KeyError("a bug")

    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context))
    receiver = make_udp(TOKEN)
    receiver.on_datagram(fail)
    await receiver.start()
    async with make_udp(TOKEN) as member:
        member.send(receiver.endpoint, b"hello")
        with pytest.raises(BaseExceptionGroup) as caught:
            await asyncio.wait_for(receiver.wait_closed(), 5)
    assert caught.group_contains(KeyError)
    assert receiver.state is State.FAILED


@pytest.mark.parametrize("host", ["fe80::1%a\0b", "no address", "\ud800", "1.2.3.4.5"])
async def test_what_no_socket_takes_is_lost_and_nothing_else(host: str):
    bob, received = make_udp(TOKEN), asyncio.Event()
    bob.on_datagram(lambda _data, _source: received.set())
    async with bob, make_udp(TOKEN) as alice:
        alice.send(Endpoint(host, 9), b"what no socket takes")
        alice.send(Endpoint("127.0.0.1", 2**17), b"what no port is")
        alice.send(bob.endpoint, b"what it takes")
        await asyncio.wait_for(received.wait(), 10)
        assert alice.state is State.RUNNING


async def test_the_door_of_a_server_refuses_a_flood_and_in_the_end_the_flooder():
    now = 0.0
    bob = Bob()
    peers = PeerTable(bob.key.node_id, 5.0)
    door = Door(peers, CallerLimits(calls_per_s=1.0, burst_calls=2.0))
    bob.rpc.guard(lambda caller, num_bytes: door.admit(caller, num_bytes, now))
    async with bob.rpc, make_rpc(TOKEN) as flooder, make_rpc(TOKEN) as carol:
        while not peers.is_banned(flooder.address.node_id, now):
            for _ in range(3):
                with contextlib.suppress(PeerUnreachable):
                    await flooder.call(bob.rpc.address, "Test/Echo", b"", timeout_s=5)
            now += 1.0
        num_served = len(bob.callers)
        now += 2.0
        with pytest.raises(ProtocolViolation, match="banned for its conduct"):
            await flooder.call(bob.rpc.address, "Test/Echo", b"", timeout_s=5)
        assert len(bob.callers) == num_served
        assert await carol.call(bob.rpc.address, "Test/Echo", b"x", timeout_s=5) == b"x"
    assert set(peers.conduct(now)) == {flooder.address.node_id}
