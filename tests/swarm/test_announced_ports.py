"""What a node tells its peers is where it really listens, whatever ports it was given."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.token import SwarmToken
from neuroswarm.node.core import NodeCore, Surroundings
from neuroswarm.node.workload import Workload
from neuroswarm.testing.swarm import SETTINGS
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.wire.heartbeats import Heartbeat

TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM


def find_free_port() -> int:
    """A port that neither a TCP nor a UDP socket has."""
    for _ in range(100):
        with socket.socket(type=TCP) as stream, socket.socket(type=UDP) as datagrams:
            stream.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                datagrams.bind(stream.getsockname())
                return int(stream.getsockname()[1])
    raise AssertionError("no port is free for both kinds")


def is_taken(kind: socket.SocketKind, port: int) -> bool:
    with socket.socket(type=kind) as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


@contextlib.contextmanager
def taking(port: int) -> Iterator[None]:
    """Somebody else's UDP socket at a port."""
    with socket.socket(type=UDP) as other:
        other.bind(("127.0.0.1", port))
        yield


def announce(folder: Path, http: int, grpc: int, heartbeat: int, dht: int | None) -> Heartbeat:
    """Start a node with these ports and stop it; what it tells of itself, checked meanwhile."""
    sections = {
        **SETTINGS,
        "network": {"host": "127.0.0.1", "port": http, "grpc_port": grpc},
        "heartbeat": {"interval_s": 0.3, "port": heartbeat},
        "dht": {"port": dht},
    }
    config = SwarmNodeConfig(**sections, state_dir=folder)
    workload = Workload(TinyModel(0), tiny_text())
    core = NodeCore(config, SwarmToken(bytes(32)), workload, Surroundings())

    async def run() -> Heartbeat:
        async with core:
            told = core.require_parts().reporter.describe()
            for kind, port in (
                (TCP, told.http_port), (TCP, told.grpc_port),
                (UDP, told.heartbeat_port), (UDP, told.dht_port),
            ):  # fmt: skip
                assert port
                assert is_taken(kind, port), (kind, port)
            return told

    return asyncio.run(run())


WISHED = st.booleans()


@settings(
    max_examples=8, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(http=WISHED, grpc=WISHED, heartbeat=WISHED, dht=st.sampled_from(["like gRPC", "any", "one"]))
def test_announced_ports_are_bound_ports(http: bool, grpc: bool, heartbeat: bool, dht: str):
    wished = [find_free_port() if is_wished else 0 for is_wished in (http, grpc, heartbeat)]
    wished_dht = {"like gRPC": None, "any": 0, "one": find_free_port()}[dht]
    with tempfile.TemporaryDirectory() as folder:
        told = announce(Path(folder), *wished, wished_dht)
    found = (told.http_port, told.grpc_port, told.heartbeat_port)
    for port, wish in zip(found, wished, strict=True):
        assert wish in (0, port)
    if wished_dht:
        assert told.dht_port == wished_dht
    if wished_dht is None and grpc:
        assert told.dht_port == told.grpc_port


def test_a_dht_whose_port_is_taken_moves_and_says_where(tmp_path: Path):
    grpc = find_free_port()
    with taking(grpc):
        told = announce(tmp_path, 0, grpc, 0, None)
    assert told.grpc_port == grpc
    assert told.dht_port != grpc
