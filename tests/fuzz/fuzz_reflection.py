"""Has a node send to where nobody asked for it: answers, echoes, calls back; counts what goes out.

Every answer here goes to a socket that plays the victim, as if its address had been written on the
question by somebody else. What is too much, `fuzz_run` says.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass

import grpc.aio
from fuzz_calls import Member
from fuzz_mutation import Mutator
from fuzz_scene import Liar, make_key

from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.datagram import CONTEXT, DHT_CONTEXT
from neuroswarm.v1 import heartbeat_pb2, probe_pb2, reach_pb2
from neuroswarm.wire.dht_messages import Find, Request
from neuroswarm.wire.signed import Kind, sign

PROBE_CONTEXT = b"neuroswarm v1 probe request"
SETTLE_S = 0.3
"""Time for the last answers to come."""

DIALS_AT_ONCE = 12
TRIES_TO_BE_KNOWN = 5


@dataclass
class Reflected:
    """What went to a node, and what came of it at the victim."""

    num_sent: int = 0
    bytes_sent: int = 0
    num_received: int = 0
    bytes_received: int = 0
    largest: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        ratio = self.bytes_received / max(1, self.bytes_sent)
        return (
            f"{self.num_sent} of {self.bytes_sent} bytes; to the victim {self.num_received} of "
            f"{self.bytes_received} bytes ({ratio:.2f} a byte)"
        )


def ask_as_victim(sealer: Sealer, port: int, count: int, mutator: Mutator) -> Reflected:
    """Questions of ever other members to a DHT port, all from the victim's address."""
    rng = mutator.rng
    names = itertools.count(rng.randrange(10**9))

    def make() -> bytes:
        request = Request(rng.randbytes(16), None, None, Find(rng.randbytes(20)))
        signed = sign(Kind.DHT_REQUEST, request.encode(), make_key("spoofed", next(names)))
        return sealer.seal(signed.to_proto().SerializeToString(), DHT_CONTEXT)

    return _reflect([make() for _ in range(count)], port, "127.0.0.97")


def probe_as_victim(sealer: Sealer, port: int, count: int, mutator: Mutator) -> Reflected:
    """Probes to a heartbeat port that want long answers, some of them broken."""

    def make() -> bytes:
        rng = mutator.rng
        probe = probe_pb2.ProbeRequest(
            answer_bytes=rng.choice((0, 100, 1000, 65536, 2**32 - 1)),
            padding=bytes(rng.choice((0, 50, 96, 300, 1000))),
        )
        if rng.randrange(3) == 0:
            probe = mutator.message(probe)
        data = probe.SerializeToString()
        if rng.randrange(5) == 0:
            data = mutator.encoding(data)
        return sealer.seal(data[:1160], PROBE_CONTEXT)

    return _reflect([make() for _ in range(count)], port, "127.0.0.96")


def _reflect(datagrams: list[bytes], port: int, host: str) -> Reflected:
    """Send them from the victim's address, a few at a time, and count what comes there."""
    seen, started, pause = Reflected(), time.monotonic(), threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind((host, 0))
        victim.setblocking(False)
        for number, data in enumerate(datagrams):
            victim.sendto(data, ("127.0.0.1", port))
            seen.num_sent += 1
            seen.bytes_sent += len(data)
            if number % 8 == 0:
                pause.wait(0.02)
                _take(victim, seen)
        pause.wait(SETTLE_S)
        _take(victim, seen)
    seen.seconds = time.monotonic() - started
    return seen


def _take(victim: socket.socket, seen: Reflected) -> None:
    while True:
        try:
            data = victim.recv(65536)
        except BlockingIOError:
            return
        seen.num_received += 1
        seen.bytes_received += len(data)
        seen.largest = max(seen.largest, len(data))


class CallsBack:
    """Members whose heartbeats name others' hosts, and that want to be called back there."""

    def __init__(self, token: SwarmToken, liar: Liar, ports: tuple[int, int, int]) -> None:
        """Take the node's ports for calls, heartbeats and HTTP, on this machine."""
        self._token, self._liar = token, liar
        self._grpc_port, self._udp_port, self._http_port = ports
        self._sealer = Sealer(token.datagram_key)
        self.outcomes: Counter[str] = Counter()
        self.num_connections = 0
        self.num_bytes = 0
        self.num_members = 0

    async def run(self, num_members: int) -> None:
        """Be so many members, one after the other."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Victim(self), "127.0.0.98", 0)
        victim_port = int(server.sockets[0].getsockname()[1])
        places = (
            ("127.0.0.98", victim_port), ("224.0.0.1", 80), ("127.0.0.1", self._grpc_port),
            ("127.0.0.1", self._http_port), ("255.255.255.255", 80), ("127.0.0.1", 0),
            ("0.0.0.0", 80), ("x.invalid", 80),
        )  # fmt: skip
        async with server:
            for number in range(num_members):
                host, port = places[number % len(places)]
                key = make_key("dialled", number, self._liar.rng.random())
                await self._be(key, host, port)
                self.num_members += 1

    async def _be(self, key: NodeKey, host: str, port: int) -> None:
        member = Member(self._token, key, self._grpc_port)
        try:
            for _ in range(TRIES_TO_BE_KNOWN):
                self._say(key, host, port)
                if await self._dial(member) != "unknown":
                    break
            ends = await asyncio.gather(*(self._dial(member) for _ in range(DIALS_AT_ONCE)))
            self.outcomes.update(ends)
        finally:
            await member.close()

    def _say(self, key: NodeKey, host: str, port: int) -> None:
        record = self._liar.body(Kind.HEARTBEAT)
        record.host, record.grpc_port, record.heartbeat_port = host, port, 9  # type: ignore[attr-defined]
        own = sign(Kind.HEARTBEAT, record.SerializeToString(), key).to_proto()
        data = heartbeat_pb2.HeartbeatDatagram(own=own).SerializeToString()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(self._sealer.seal(data, CONTEXT), ("127.0.0.1", self._udp_port))

    async def _dial(self, member: Member) -> str:
        try:
            answer = reach_pb2.DialReply.FromString(await member.call("Reach/Dial", b""))
        except grpc.aio.AioRpcError as error:
            return "unknown" if "no heartbeat" in str(error.details()) else error.code().name
        return "reached" if answer.reached_host else "not reached"


class _Victim(asyncio.Protocol):
    """Whoever listens where members have the node call; says nothing."""

    def __init__(self, seen: CallsBack) -> None:
        self._seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self._transport = transport
        self._seen.num_connections += 1

    def data_received(self, data: bytes) -> None:
        """Count what the node said, and hang up: silence would cost the deadline of a call."""
        self._seen.num_bytes += len(data)
        self._transport.close()
