"""Sends datagrams to the DHT port of a node as members do, most of them broken or out of place.

Slowly, and from many addresses: what comes faster, or too often from one, is dropped unread.
"""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from fuzz_datagrams import CHECK
from fuzz_mutation import Mutator
from fuzz_nodes import LiveNode
from fuzz_scene import DHT_KINDS, Liar, make_key

from neuroswarm.dht.record_store import MAX_PER_KEY
from neuroswarm.identity.sealing import Sealer
from neuroswarm.net.datagram import CONTEXT, DHT_CONTEXT
from neuroswarm.v1 import dht_pb2, envelope_pb2
from neuroswarm.values import NodeId
from neuroswarm.wire import limits
from neuroswarm.wire.dht_messages import Fetch, Find, Request, decode_answer
from neuroswarm.wire.dht_records import swarm_key
from neuroswarm.wire.signed import Kind, sign

NUM_SOURCES = 64
"""Addresses that datagrams come from; each is answered 40 times, then twice a second."""

PER_S = 350.0
"""Datagrams a second: a node checks the signatures of 375 a second for those that it does not know,
and drops the others."""

SIGNER_LIFE = 6
"""Datagrams of one identity; it is banned for four bad ones."""

ANSWER_S = 2.0
ODD_PLACES = (
    (bytes((224, 0, 0, 1)), 9), (b"\xff" * 4, 9), (bytes(4), 9), (bytes((127, 0, 0, 1)), 0),
    (bytes((127, 0, 0, 1)), 65535), (b"\xff\x02" + bytes(13) + b"\x01", 9), (b"\x7f\0\0", 9),
    (bytes(10) + b"\xff\xff\xe0\0\0\1", 9),
)  # fmt: skip
"""Addresses and ports where no DHT node is: of all machines, of none, of this one."""


class Sources:
    """Sockets at ever other loopback addresses."""

    def __init__(self, net: int) -> None:
        """Bind them in 127.`net`.0.0/16."""
        self._sockets = [_bound(f"127.{net}.0.{1 + n}") for n in range(NUM_SOURCES)]
        self._next = 0

    def send(self, data: bytes, port: int) -> None:
        """Send from the next one."""
        self._next = (self._next + 1) % NUM_SOURCES
        self._sockets[self._next].sendto(data, ("127.0.0.1", port))

    def close(self) -> None:
        """Let all of them go."""
        for sender in self._sockets:
            sender.close()


def _bound(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host, 0))
    return made


def of_dht_members(
    mutator: Mutator, liar: Liar, sealer: Sealer, captured: list[bytes], kinds: Counter[str]
) -> Iterator[bytes]:
    """What a member can send to a DHT port unasked: all of it opens, little of it holds."""
    rng = mutator.rng
    for number in itertools.count(1000 * rng.randrange(10**9)):  # nobody of an earlier run
        key = make_key("dht member", number // SIGNER_LIFE)
        choice = rng.randrange(100)
        if choice < 5:
            kinds["replayed"] += 1
            yield rng.choice(captured)
            continue
        if choice < 20:
            kind, message = "places", _of_place(liar, number)
        elif choice < 45:
            kind, message = "well-formed", _asking(liar, number)
        elif choice < 95:
            of_kind = rng.choice(DHT_KINDS)
            kind, message = of_kind.name.lower(), liar.signed(of_kind, key)
        else:
            kind, message = "other statements", liar.signed(rng.choice(tuple(Kind)), key)
        data = message.SerializeToString()
        if rng.randrange(5) == 0:
            kind, data = "encoding broken", mutator.encoding(data)
        if rng.randrange(50) == 0:
            kind, data = "oversized", data + bytes(limits.MAX_DATAGRAM_BYTES)
        kinds[kind] += 1
        context = DHT_CONTEXT if rng.randrange(50) else CONTEXT
        yield sealer.seal(data[: limits.MAX_DATAGRAM_BYTES + rng.randrange(2)], context)


def _asking(liar: Liar, number: int) -> envelope_pb2.Signed:
    """A question in good order, of somebody new, under a key that is nobody's."""
    key, rng = make_key("dht asker", number), liar.rng
    request = Request(rng.randbytes(16), None, None, Find(rng.randbytes(20)))
    return sign(Kind.DHT_REQUEST, request.encode(), key).to_proto()


def _of_place(liar: Liar, number: int) -> envelope_pb2.Signed:
    """A ping of somebody new, who says to be at a place that is not one machine's own."""
    key, rng = make_key("dht place", number), liar.rng
    address, port = rng.choice(ODD_PLACES)
    body = dht_pb2.DhtContact(address=address, port=port, sequence=rng.choice((1, 2**53, 2**63)))
    contact = sign(Kind.DHT_CONTACT, body.SerializeToString(), key)
    request = dht_pb2.DhtRequest(nonce=rng.randbytes(16), contact=contact.to_proto())
    request.ping.SetInParent()
    return sign(Kind.DHT_REQUEST, request.SerializeToString(), key).to_proto()


class SlowPace:
    """Sends no faster than signatures are checked, and does something else in between."""

    def __init__(self, node: LiveNode, port: int, between: Callable[[], None]) -> None:
        """Send to `port` here; `between` is called every few datagrams."""
        self._node, self._port, self._between = node, port, between
        self._pause = threading.Event()

    def send(self, datagrams: Iterator[bytes], target: int, net: int) -> int:
        """Send from 127.`net`.0.0/16 until the node received `target`; how many were sent."""
        sources, num_sent, batch = Sources(net), 0, 16
        goal = self._received() + target
        try:
            while (missing := goal - self._received()) > 0:
                for _ in range(min(missing, CHECK) // batch + 1):
                    for _ in range(batch):
                        sources.send(next(datagrams), self._port)
                    num_sent += batch
                    self._between()
                    self._pause.wait(batch / PER_S)
        finally:
            sources.close()
        return num_sent

    def _received(self) -> int:
        return int(self._node.status()["dht"]["datagrams_received"])


def overhear_dht(port: int, sealer: Sealer) -> list[bytes]:
    """Real datagrams of a node's DHT: a few questions in good order, and its answers."""
    heard: list[bytes] = []
    with _bound("127.0.0.94") as own:
        own.settimeout(ANSWER_S)
        for number in range(4):
            request = Request(secrets.token_bytes(16), None, None, Find(bytes([number]) * 20))
            signed = sign(Kind.DHT_REQUEST, request.encode(), make_key("overhearing")).to_proto()
            heard.append(sealer.seal(signed.SerializeToString(), DHT_CONTEXT))
            own.sendto(heard[-1], ("127.0.0.1", port))
            heard.append(own.recv(2048))
    return heard


def find_publishers(port: int, sealer: Sealer, swarm_id: bytes) -> set[NodeId]:
    """Who has a record under the swarm's key at the node, as a newcomer is told in all pages."""
    found: set[NodeId] = set()
    key, after, newcomer = swarm_key(swarm_id), b"", make_key("newcomer", swarm_id)
    with _bound("127.0.0.95") as own:
        own.settimeout(ANSWER_S)
        for _ in range(MAX_PER_KEY):
            request = Request(secrets.token_bytes(16), None, None, Fetch(key, after))
            signed = sign(Kind.DHT_REQUEST, request.encode(), newcomer).to_proto()
            sealed = sealer.seal(signed.SerializeToString(), DHT_CONTEXT)
            own.sendto(sealed, ("127.0.0.1", port))
            try:
                reply = sealer.open(own.recv(2048), DHT_CONTEXT)
            except TimeoutError:
                break  # lost, or too often: whoever wants to know asks again
            answer = decode_answer(envelope_pb2.Signed.FromString(reply).body)
            signers = [NodeId.of_key(record.public_key) for record in answer.records]
            found.update(signers)
            if not signers or not answer.num_left:
                break
            after = max(signers)
    return found
