"""UDP by IPv4 and IPv6 at once, with answers from where the other side was heard."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from neuroswarm.listening import bind, mapped, unmapped
from neuroswarm.net import udp_socket
from neuroswarm.net.udp_socket import UdpSocket
from neuroswarm.values import Endpoint

WITHIN_S = 20.0


def has_v6() -> bool:
    try:
        bind(socket.SOCK_DGRAM, Endpoint("::1", 0)).close()
    except OSError:
        return False
    return True


needs_v6 = pytest.mark.skipif(not has_v6(), reason="this machine has no IPv6")


class End:
    """One socket, with what it received; answers everything if it is told to."""

    def __init__(self, host: str, *, answers: bool = False, is_authentic: bool = True) -> None:
        self.answers = answers
        self.is_authentic = is_authentic
        self.received: asyncio.Queue[tuple[bytes, Endpoint]] = asyncio.Queue()
        self.socket = UdpSocket(Endpoint(host, 0), self.take)

    def take(self, data: bytes, source: Endpoint) -> None:
        if self.is_authentic:
            self.socket.keep_way_back()
        self.received.put_nowait((data, source))
        if self.answers:
            self.socket.send(source, b"answer to " + data)

    async def next(self) -> tuple[bytes, Endpoint]:
        async with asyncio.timeout(WITHIN_S):
            return await self.received.get()


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_end(ends: ExitStack, host: str, **how: bool) -> End:
    end = End(host, **how)
    ends.callback(end.socket.close)
    return end


@pytest.mark.parametrize(
    ("listen", "dialled", "caller"),
    [
        ("0.0.0.0", "127.0.0.5", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1", "127.0.0.9"),
        pytest.param("::", "127.0.0.5", "127.0.0.1", marks=needs_v6),
        pytest.param("::", "::1", "::1", marks=needs_v6),
    ],
)
async def test_an_answer_leaves_from_the_address_that_was_dialled(ends, listen, dialled, caller):
    server, client = open_end(ends, listen, answers=True), open_end(ends, caller)
    there = Endpoint(dialled, server.socket.port)
    client.socket.send(there, b"hello")
    assert await client.next() == (b"answer to hello", there)
    assert await server.next() == (b"hello", Endpoint(caller, client.socket.port))
    server.socket.send(Endpoint(caller, client.socket.port), b"later")
    assert await client.next() == (b"later", there)


async def test_who_is_not_authentic_is_not_remembered(ends):
    server = open_end(ends, "0.0.0.0", answers=True, is_authentic=False)
    client = open_end(ends, "127.0.0.1")
    client.socket.send(Endpoint("127.0.0.5", server.socket.port), b"hello")
    _, source = await client.next()
    assert source == Endpoint("127.0.0.1", server.socket.port)


async def test_an_address_that_is_gone_is_not_insisted_on(ends):
    server, client = open_end(ends, "0.0.0.0"), open_end(ends, "127.0.0.1")
    here = Endpoint("127.0.0.1", client.socket.port)
    gone = socket.inet_aton("203.0.113.77")
    told = (socket.IPPROTO_IP, 8, udp_socket._V4_INFO.pack(0, gone, bytes(4)))
    server.socket._heard_at[here] = told
    server.socket.send(here, b"hello")
    assert (await client.next())[0] == b"hello"
    assert here not in server.socket._heard_at


async def test_the_table_of_ways_back_is_bounded(ends):
    server = open_end(ends, "0.0.0.0")
    told = (socket.IPPROTO_IP, 8, udp_socket._V4_INFO.pack(1, bytes(4), bytes(4)))
    for port in range(udp_socket.MAX_HEARD + 10):
        server.socket._arrived = Endpoint("127.0.0.1", port), [told]
        server.socket.keep_way_back()
    assert len(server.socket._heard_at) == udp_socket.MAX_HEARD


@needs_v6
async def test_who_listens_to_all_talks_to_both_kinds(ends):
    both, four, six = (open_end(ends, host) for host in ("::", "127.0.0.1", "::1"))
    assert [end.socket.reaches for end in (both, four, six)] == [
        socket.AF_UNSPEC,
        socket.AF_INET,
        socket.AF_INET6,
    ]
    for end, host in ((four, "127.0.0.1"), (six, "::1")):
        both.socket.send(Endpoint(host, end.socket.port), b"hello")
        assert await end.next() == (b"hello", Endpoint(host, both.socket.port))


async def test_what_cannot_be_sent_is_lost_and_no_error(ends):
    four = open_end(ends, "127.0.0.1")
    for host in ("::1", "255.255.255.255", "no-address"):
        four.socket.send(Endpoint(host, 9), b"hello")
    four.socket.send(Endpoint("127.0.0.1", four.socket.port), b"x" * 65_535)
    four.socket.send(Endpoint("127.0.0.1", four.socket.port), b"hello")
    assert (await four.next())[0] == b"hello"


async def test_what_the_kernel_does_not_take_at_once_waits_within_bounds(ends):
    end = open_end(ends, "127.0.0.1")
    here = Endpoint("127.0.0.1", end.socket.port)
    end.socket._waiting.append((b"0", here))
    for number in range(1, udp_socket.MAX_WAITING + 10):
        end.socket.send(here, str(number).encode())
    assert len(end.socket._waiting) == udp_socket.MAX_WAITING
    end.socket._on_writable()
    assert not end.socket._waiting
    assert [(await end.next())[0] for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_long_datagram_arrives_cut_off(ends):
    end = open_end(ends, "127.0.0.1")
    end.socket.send(Endpoint("127.0.0.1", end.socket.port), b"x" * 9000)
    data, _ = await end.next()
    assert len(data) == udp_socket.MAX_RECEIVED_BYTES


@needs_v6
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_ipv4_has_is_taken_for_both(kind):
    with bind(kind, Endpoint("127.0.0.1", 0)) as held:
        if kind == socket.SOCK_STREAM:
            held.listen()
        with pytest.raises(OSError, match="in use"):
            bind(kind, Endpoint("::", held.getsockname()[1]))


def test_an_ipv4_address_has_another_form_on_a_socket_for_both():
    assert mapped("10.0.0.1") == "::ffff:10.0.0.1"
    assert unmapped("::ffff:10.0.0.1") == "10.0.0.1"
    assert mapped("2001:db8::1") == unmapped("2001:db8::1") == "2001:db8::1"
