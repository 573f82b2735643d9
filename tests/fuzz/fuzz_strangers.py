"""What strangers may send to the TCP ports of a node: noise, broken TLS, hostile HTTP.

And what members may send there that is no call at all. Knows nothing of what follows.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import tempfile
from collections import Counter
from pathlib import Path

from fuzz_mutation import Mutator
from fuzz_scene import Liar, make_key

from neuroswarm.identity.certificate import issue
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.v1 import control_pb2, heartbeat_pb2, probe_pb2
from neuroswarm.wire import limits, probes
from neuroswarm.wire.signed import Kind

TIMEOUT_S = 10.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CONTEXTS = {
    "/v1/tracker": b"neuroswarm v1 tracker request",
    "/v1/rules": b"neuroswarm v1 rules request",
    "/v1/probe": b"neuroswarm v1 probe request",
}
_WRONG_TOKEN = SwarmToken(bytes(range(32)))
_HELLO = bytes.fromhex("16030100c8010000c40303")
_HTTP = (
    b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /v1/tracker HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /v1/tracker HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/rules HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n",
    b"POST /v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"GET /status HTTP/9.9\r\n\r\n",
    PREFACE,
)  # fmt: skip


class Stranger:
    """Connects to TCP ports on this machine from ever other loopback addresses."""

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        self._rng = mutator.rng
        self.counts: Counter[str] = Counter()
        self._wrong_ca = _client_context(_WRONG_TOKEN)

    def knock(self, port: int) -> None:
        """One connection of garbage to the gRPC port."""
        choice = self._rng.randrange(100)
        if choice < 10:
            self.counts["TLS under another authority"] += 1
            self._handshake(port, self._wrong_ca)
        elif choice < 15:
            self.counts["TLS without a certificate"] += 1
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._handshake(port, context)
        elif choice < 40:
            self.counts["HTTP/2 in the clear"] += 1
            self._send(port, PREFACE + self._rng.randbytes(200))
        elif choice < 70:
            self.counts["TLS noise"] += 1
            self._send(port, self._mutator.flipped(_HELLO) + self._rng.randbytes(200))
        else:
            self.counts["noise"] += 1
            self._send(port, self._rng.randbytes(self._rng.choice((1, 5, 300, 5000))))

    def write_http(self, port: int) -> None:
        """One connection of garbage to the HTTP port."""
        self.counts["HTTP garbage"] += 1
        data = self._rng.choice(_HTTP)
        if self._rng.randrange(2):
            data = self._mutator.flipped(data)
        self._send(port, data)

    def post(
        self, port: int, path: str, body: bytes, headers: dict[str, str], source: str = ""
    ) -> int | None:
        """Post a body; the status of the answer, None if there was none."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=TIMEOUT_S, source_address=(source or self._address(), 0)
        )
        try:
            connection.request("POST", path, body, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def post_garbage(self, port: int) -> None:
        """A body that no token sealed."""
        path = self._rng.choice(tuple(_CONTEXTS))
        size = self._rng.choice((0, 1, 27, 28, 500, 70_000, 600_000))
        sealed = Sealer(_WRONG_TOKEN.datagram_key).seal(self._rng.randbytes(100), _CONTEXTS[path])
        body = self._rng.choice((self._rng.randbytes(size), sealed, self._mutator.cut(sealed)))
        packing = self._rng.choice(("identity", "gzip", "deflate", "br"))
        status = self.post(port, path, body, {"Content-Encoding": packing})
        self.counts[f"unsealed body: {status}"] += 1

    def post_broken(self, port: int, liar: Liar, sealer: Sealer) -> None:
        """A body that is sealed rightly, and broken inside."""
        rng, key = self._rng, make_key("http", self._rng.randrange(100))
        path = rng.choice(tuple(_CONTEXTS))
        if path == "/v1/tracker":
            own = liar.signed(rng.choice((Kind.HEARTBEAT, Kind.HEARTBEAT, Kind.BALLOT)), key)
            data = heartbeat_pb2.TrackerRequest(own=own).SerializeToString()
        elif path == "/v1/probe":
            probe = probe_pb2.ProbeRequest(answer_bytes=500, padding=bytes(500))
            data = self._mutator.message(probe).SerializeToString()
        else:
            made = liar.signed(Kind.AMENDMENT, rng.choice((key, liar.scene.owner)))
            data = control_pb2.RulesRequest(amendment=made).SerializeToString()
        if rng.randrange(3) == 0:
            data = self._mutator.encoding(data)
        status = self.post(port, path, sealer.seal(data, _CONTEXTS[path]), {})
        self.counts[f"sealed body: {status}"] += 1

    def flood_probes(self, port: int, sealer: Sealer, most: int) -> None:
        """Probes in good order that want long answers, all from one address, until it is enough."""
        source = self._address()
        for _ in range(most):
            if self.counts["probe: 429"]:
                return
            body = probes.seal_probe(sealer, answer_bytes=limits.MAX_PROBE_BYTES)
            status = self.post(port, probes.PROBE_PATH, body, {}, source)
            self.counts[f"probe: {status}"] += 1

    def write_http2(self, port: int, context: ssl.SSLContext) -> None:
        """A member's connection with garbage in place of HTTP/2 frames."""
        self.counts["HTTP/2 garbage of a member"] += 1
        frames = b"".join(self._frame() for _ in range(self._rng.randint(1, 8)))
        self._handshake(port, context, PREFACE + frames)

    def _frame(self) -> bytes:
        rng = self._rng
        size = rng.choice((0, 1, 6, 100))
        claimed = size if rng.randrange(3) else rng.choice((0, 2**14 + 1, 2**24 - 1))
        head = (
            claimed.to_bytes(3, "big")
            + rng.randbytes(2)
            + rng.choice((0, 1, 3, 2**31)).to_bytes(4, "big")
        )
        return bytes((*head[:3], rng.choice(range(12)), *head[4:])) + rng.randbytes(size)

    def _address(self) -> str:
        net, subnet, host = (self._rng.randint(1, 250) for _ in range(3))
        return f"127.{net}.{subnet}.{host}"

    def _send(self, port: int, data: bytes) -> None:
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(TIMEOUT_S)
            connection.bind((self._address(), 0))
            connection.connect(("127.0.0.1", port))
            connection.sendall(data)

    def _handshake(self, port: int, context: ssl.SSLContext, data: bytes = b"x") -> None:
        with contextlib.suppress(OSError):  # ssl.SSLError is one
            plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            with plain, context.wrap_socket(plain, server_hostname="node.neuroswarm") as tls:
                tls.sendall(data)
                tls.shutdown(socket.SHUT_WR)
                while tls.recv(4096):
                    pass


def member_context(token: SwarmToken, number: int) -> ssl.SSLContext:
    """TLS of a member of the swarm."""
    return _client_context(token, number)


def _client_context(token: SwarmToken, number: int = 0) -> ssl.SSLContext:
    credentials = issue(token, make_key("tls", number))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain.pem"
        chain.write_bytes(credentials.certificate_pem + credentials.key_pem)
        context.load_cert_chain(chain)
    return context
