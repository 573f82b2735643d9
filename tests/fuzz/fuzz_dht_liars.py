"""Members that a node takes into its table of the DHT, and then asks: each of them lies in its way.

Knows how to lie; what the node must make of it, `fuzz_run` says.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fuzz_dht import ODD_PLACES
from fuzz_mutation import Mutator
from fuzz_scene import make_key

from neuroswarm.dht.record_store import MAX_TTL_S
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.net.datagram import DHT_CONTEXT
from neuroswarm.v1 import dht_pb2, envelope_pb2
from neuroswarm.values import Endpoint
from neuroswarm.wire.dht_messages import NONCE_BYTES, Find, Ping, Request
from neuroswarm.wire.dht_records import DhtContact
from neuroswarm.wire.signed import Kind, sign

NUM_ALIVE = 24
"""Liars at a time; the oldest one falls silent."""

NUM_CLOCKS = 8
"""Liars about the time that come together: the time of a swarm is the median of what all say."""

NUM_STORES, NUM_GOOD = 30, 12
"""Records that one liar wants kept, and those of them that may be."""

NO_TIMES = (1e308, -1e308, float("nan"), float("inf"), -1.0, 2.6e11)
ODD_ENDS = (float("nan"), float("inf"), -1.0, 0.0, 1e308, 1e12)


class Sink:
    """A socket of somebody who never asked for anything; counts what comes."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.99", 0))
        self._socket.setblocking(False)
        self.num_datagrams = 0
        self.num_bytes = 0

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        return Endpoint(*self._socket.getsockname())

    def look(self) -> None:
        """Count what has come."""
        for data, _ in _waiting(self._socket):
            self.num_datagrams += 1
            self.num_bytes += len(data)

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()


@dataclass
class Stage:
    """Where all liars are."""

    port: int
    """Of the node's DHT, on this machine."""
    sealer: Sealer
    mutator: Mutator
    swarm_id: bytes
    sink: Sink
    told: Counter[str]
    """Lies told so far, by kind."""


class DhtLiar:
    """One identity with one socket."""

    def __init__(self, kind: str, number: int, stage: Stage) -> None:
        self.kind = kind
        # all that come together say the same: the time of a swarm is the median
        self._time = NO_TIMES[number // (NUM_CLOCKS * len(KINDS)) % len(NO_TIMES)]
        self._stage, self._rng = stage, stage.mutator.rng
        self._key: NodeKey = make_key("dht liar", kind, number, self._rng.random())
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((f"127.8.{1 + number // 250 % 250}.{1 + number % 250}", 0))
        self._socket.setblocking(False)
        own = DhtContact(Endpoint(*self._socket.getsockname()), 1)
        self._contact = sign(Kind.DHT_CONTACT, own.encode(), self._key).to_proto()
        self._ask(Request(self._nonce(), None, self._contact, Ping()))

    def tend(self) -> None:
        """Answer what was asked meanwhile."""
        for data, source in _waiting(self._socket):
            opened = self._stage.sealer.open(data, DHT_CONTEXT)
            message = envelope_pb2.Signed.FromString(opened)
            if message.kind == envelope_pb2.KIND_DHT_REQUEST:
                request = dht_pb2.DhtRequest.FromString(message.body)
                self._send(Kind.DHT_ANSWER, self._answer(request), source)
            elif permit := dht_pb2.DhtAnswer.FromString(message.body).permit:
                self._store(permit)

    def close(self) -> None:
        """Fall silent."""
        self._socket.close()

    def _answer(self, request: dht_pb2.DhtRequest) -> bytes:
        answer = dht_pb2.DhtAnswer(nonce=request.nonce, time=time.time())
        is_ping = request.WhichOneof("question") == "ping"
        if is_ping:
            answer.contact.CopyFrom(self._contact)
        if self.kind == "stores" and is_ping:
            self._ask(Request(self._nonce(), None, None, Find(self._rng.randbytes(20))))
        if not is_ping or self.kind == "times":  # who lies at once gets into no table
            _LIES[self.kind](self, request, answer)
            self._stage.told[self.kind] += 1
        return answer.SerializeToString()

    def _tell_time(self, _request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        answer.time = self._time

    def _name_stranger(self, request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        body = DhtContact(self._stage.sink.endpoint, 1).encode()
        for number in range(8):
            invented = make_key("invented", request.find.key, number)
            answer.contacts.append(sign(Kind.DHT_CONTACT, body, invented).to_proto())

    def _name_places(self, request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        address, port = self._rng.choice((*ODD_PLACES, (bytes((127, 0, 0, 1)), self._stage.port)))
        body = dht_pb2.DhtContact(address=address, port=port, sequence=2**53)
        invented = make_key("misplaced", request.find.key)
        answer.contacts.append(
            sign(Kind.DHT_CONTACT, body.SerializeToString(), invented).to_proto()
        )

    def _invent_records(self, _request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        record = sign(Kind.DHT_RECORD, self._record(0).SerializeToString(), self._key).to_proto()
        if self._rng.randrange(2):
            record.signature = bytes(64)
        answer.records.append(record)
        answer.num_records = answer.num_left = self._rng.choice((0, 1, 2**31, 2**32 - 1))

    def _break(self, _request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        nonce = answer.nonce
        answer.CopyFrom(self._stage.mutator.message(answer))
        answer.nonce = nonce

    def _keep_still(self, _request: dht_pb2.DhtRequest, answer: dht_pb2.DhtAnswer) -> None:
        """Nothing but the truth, which is that it knows nobody: what lies are its records."""

    def _store(self, permit: bytes) -> None:
        """Want records kept: good ones first, then with versions, ends and sizes that none has."""
        for number in range(NUM_STORES):
            made = self._good_record(number) if number <= NUM_GOOD else self._record(number)
            if number == NUM_GOOD:
                made.expires_at += 10 * MAX_TTL_S  # as good as the others, for far too long
            body = made.SerializeToString()[: Kind.DHT_RECORD.max_body_bytes]
            record = sign(Kind.DHT_RECORD, body, self._key).to_proto()
            request = dht_pb2.DhtRequest(nonce=self._nonce())
            request.store.record.CopyFrom(record)
            is_forged = number > NUM_GOOD and self._rng.randrange(9) == 0
            request.store.permit = self._rng.randbytes(8) if is_forged else permit
            self._send(Kind.DHT_REQUEST, request.SerializeToString(), self._target)
            self._stage.told["stores"] += 1

    def _good_record(self, number: int) -> dht_pb2.DhtRecord:
        return dht_pb2.DhtRecord(
            swarm_id=self._stage.swarm_id, scope=dht_pb2.DHT_SCOPE_FRAGMENT, fragment=number,
            sequence=self._rng.choice((0, 2**53)), hosts=["127.0.0.1"], grpc_port=9,
            expires_at=time.time() + self._rng.choice((100, 7000)),
        )  # fmt: skip

    def _record(self, number: int) -> dht_pb2.DhtRecord:
        rng = self._rng
        ends_at = rng.choice(ODD_ENDS) if rng.randrange(2) else time.time() + rng.choice((1, 7000))
        made = dht_pb2.DhtRecord(
            swarm_id=self._stage.swarm_id, scope=rng.choice((1, 2, 3)), expires_at=ends_at,
            sequence=rng.choice((0, 1, 2**53, 2**53 + 1, 2**64 - 1)), hosts=["127.0.0.1"],
            grpc_port=9, heartbeat_port=9,
        )  # fmt: skip
        if made.scope == dht_pb2.DHT_SCOPE_FRAGMENT:
            made.fragment = rng.choice((number, 1023, 2**32 - 1))
        if rng.randrange(4) == 0:
            made.hosts.extend(["x" * 60 + ".invalid"] * rng.choice((3, 8)))
        return self._stage.mutator.message(made) if rng.randrange(3) == 0 else made

    @property
    def _target(self) -> tuple[str, int]:
        return ("127.0.0.1", self._stage.port)

    def _nonce(self) -> bytes:
        return self._rng.randbytes(NONCE_BYTES)

    def _ask(self, request: Request) -> None:
        self._send(Kind.DHT_REQUEST, request.encode(), self._target)

    def _send(self, kind: Kind, body: bytes, to: tuple[str, int]) -> None:
        signed = sign(kind, body[: kind.max_body_bytes], self._key).to_proto()
        sealed = self._stage.sealer.seal(signed.SerializeToString(), DHT_CONTEXT)
        self._socket.sendto(sealed, to)


_LIES: Mapping[str, Callable[[DhtLiar, dht_pb2.DhtRequest, dht_pb2.DhtAnswer], None]] = {
    "strangers": DhtLiar._name_stranger,
    "places": DhtLiar._name_places,
    "records": DhtLiar._invent_records,
    "broken": DhtLiar._break,
    "stores": DhtLiar._keep_still,
    "times": DhtLiar._tell_time,
}
KINDS = tuple(_LIES)


class Liars:
    """Ever new liars, a few of them at a time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._alive: list[DhtLiar] = []
        self._numbers = itertools.count()

    @property
    def kinds(self) -> set[str]:
        """Those of the liars that speak now."""
        return {liar.kind for liar in self._alive}

    def add(self) -> None:
        """One more, of the next kind; or as many liars about the time as outvote the others."""
        number = next(self._numbers)
        kind = KINDS[number % len(KINDS)]
        for twin in range(NUM_CLOCKS if kind == "times" else 1):
            self._alive.append(DhtLiar(kind, NUM_CLOCKS * number + twin, self.stage))
        while len(self._alive) > NUM_ALIVE:
            self._alive.pop(0).close()

    def tend(self) -> None:
        """Have all of them answer."""
        self.stage.sink.look()
        for liar in self._alive:
            liar.tend()

    def close(self) -> None:
        """Have all of them fall silent."""
        for liar in self._alive:
            liar.close()


def _waiting(sock: socket.socket) -> list[tuple[bytes, tuple[str, int]]]:
    found = []
    while True:
        try:
            found.append(sock.recvfrom(4096))
        except BlockingIOError:
            return found
