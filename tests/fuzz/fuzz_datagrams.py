"""Sends datagrams to a node, with the swarm's token and without, no faster than it takes them."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzz_mutation import Mutator
from fuzz_nodes import LiveNode
from fuzz_scene import Liar, make_key

from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.net.datagram import CONTEXT
from neuroswarm.v1 import envelope_pb2, heartbeat_pb2
from neuroswarm.wire import limits
from neuroswarm.wire.signed import Kind

BURST = 32
"""Datagrams between two looks at the kernel's queue."""

CHECK = 4096
"""Datagrams between two looks at the node's own counter."""

MAX_QUEUE_BYTES = 64 * 1024
"""Bytes waiting for the node above which the sender waits: well below what a socket holds."""

NUM_SIGNERS = 24
"""Members that speak at a time; one of them is replaced by a new one now and then."""

SIGNER_LIFE = 2000


class Pace:
    """Sends, and counts what the node says it received."""

    def __init__(
        self,
        node: LiveNode,
        on_status: Callable[[dict[str, Any]], None],
        *,
        port: int | None = None,
        count: Callable[[dict[str, Any]], int] = lambda status: int(status["datagrams_received"]),
    ) -> None:
        """Send to the node's heartbeat port, or to another one that is counted by itself."""
        self._node = node
        self._port = port or node.udp_port
        self._count = count
        self._on_status = on_status
        self._pause = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.num_sent = 0
        self.num_received = 0

    def send(self, datagrams: Iterator[bytes], target: int) -> None:
        """Send until the node has received `target` more of them."""
        to, base = ("127.0.0.1", self._port), self._received()
        goal, since = self.num_received + target, self.num_received
        while self.num_received < goal:
            for _ in range(min(CHECK, goal - self.num_received) // BURST + 1):
                for _ in range(BURST):
                    self._socket.sendto(next(datagrams), to)
                self.num_sent += BURST
                self._drain(MAX_QUEUE_BYTES)
            self._drain(0)
            self.num_received = since + self._received() - base

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()

    def _drain(self, limit: int) -> None:
        while (queued_bytes(self._port) or 0) > limit:
            self._pause.wait(0.001)

    def _received(self) -> int:
        status = self._node.status()
        self._on_status(status)
        return self._count(status)


def queued_bytes(port: int) -> int | None:
    """Bytes that wait in the UDP socket bound to a port here; None where Linux does not tell."""
    table = Path("/proc/net/udp")
    if not table.exists():
        return None
    for line in table.read_text().splitlines()[1:]:
        columns = line.split()
        if int(columns[1].partition(":")[2], 16) == port:
            return int(columns[4].partition(":")[2], 16)
    return 0


def of_strangers(mutator: Mutator, captured: list[bytes], kinds: Counter[str]) -> Iterator[bytes]:
    """What can be sent without the token: noise, and what was overheard, broken or whole."""
    rng, other = mutator.rng, Sealer(SwarmToken(bytes(range(32))).datagram_key)
    while True:
        choice = rng.randrange(100)
        if choice < 30:
            kind, data = "noise", rng.randbytes(rng.choice((1, 11, 12, 27, 28, 29, 200, 600, 1188)))
        elif choice < 32:
            kind, data = "too long", rng.randbytes(rng.choice((1189, 1500, 9000)))
        elif choice < 55:
            kind, data = "real, cut", mutator.cut(rng.choice(captured))
        elif choice < 85:
            kind, data = "real, bits flipped", mutator.flipped(rng.choice(captured))
        elif choice < 95:
            kind, data = "under another token", other.seal(rng.randbytes(200), CONTEXT)
        else:
            kind, data = "replayed", rng.choice(captured)
        kinds[kind] += 1
        yield data


def of_members(
    mutator: Mutator, liar: Liar, sealer: Sealer, captured: list[bytes], kinds: Counter[str]
) -> Iterator[bytes]:
    """What a member can send: everything opens, little of it holds."""
    rng, number = mutator.rng, NUM_SIGNERS
    signers = [make_key("datagrams", index) for index in range(NUM_SIGNERS)]
    while True:
        number += 1
        if number % SIGNER_LIFE == 0:
            signers[rng.randrange(NUM_SIGNERS)] = make_key("datagrams", number)
        key = rng.choice(signers)
        choice = rng.randrange(100)
        if choice < 4:
            kinds["replayed"] += 1
            yield rng.choice(captured)
            continue
        of_kind = Kind.HEARTBEAT if choice < 90 else rng.choice(tuple(Kind))
        message = heartbeat_pb2.HeartbeatDatagram(own=liar.signed(of_kind, key))
        for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 1, 3, 4))):
            message.heard.append(_heard(liar, rng.choice(signers)))
        if choice < 60:
            kind, data = "statement broken", message.SerializeToString()
        elif choice < 75:
            kind, data = "structure broken", mutator.message(message).SerializeToString()
        else:
            kind, data = "encoding broken", mutator.encoding(message.SerializeToString())
        kinds[kind] += 1
        context = CONTEXT if rng.randrange(50) else b"another purpose"
        yield sealer.seal(data[: limits.MAX_DATAGRAM_BYTES + rng.randrange(2)], context)


def _heard(liar: Liar, key: object) -> envelope_pb2.Signed:
    rng = liar.rng
    if rng.randrange(3) == 0:
        return liar.scene.victim
    body = liar.body(Kind.HEARTBEAT).SerializeToString()
    return liar.spoofed(Kind.HEARTBEAT, body, make_key("spoof", rng.randrange(8)))
