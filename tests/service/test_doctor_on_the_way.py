"""What lies between this machine and another: firewalls, tokens, black holes, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from doctor_scene import DEADLINE_S, compare, require, run_doctor
from prometheus_client import CollectorRegistry

from neuroswarm.clock import SystemClock
from neuroswarm.discovery.hint import read_hints
from neuroswarm.discovery.host_names import NameLookup
from neuroswarm.discovery.probe_desk import ProbeDesk
from neuroswarm.doctor.exploring import Explored, explore
from neuroswarm.doctor.judge_ways import judge_ways
from neuroswarm.errors import PeerUnreachable
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.membership.own_record import OwnRecord
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.net.datagram import UdpTransport
from neuroswarm.values import Endpoint
from neuroswarm.web.server import Pages, WebServer
from neuroswarm.wire.heartbeats import Heartbeat
from neuroswarm.wire.probes import PROBE_PATH

HERE = "127.0.0.1"
SEALER = Sealer(b"k" * 32)
NOBODY_PORT = 1
"""Nothing listens there."""


@dataclass
class Scene:
    """A node's three ports, as far as the doctor sees them."""

    web: WebServer
    udp: UdpTransport
    grpc: asyncio.Server
    peers: PeerTable
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.web.endpoint}"

    def describe(self) -> Heartbeat:
        return Heartbeat(
            b"s" * 32, 0, 0.0, HERE, self.ports["grpc"], self.ports["udp"],
            self.ports["http"], 1, is_training=True,
        )  # fmt: skip


@asynccontextmanager
async def scene(sealer: Sealer = SEALER) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        peers = PeerTable(NodeKey.generate().node_id, 5.0)
        udp = UdpTransport(sealer, Endpoint(HERE, 0))
        grpc = await asyncio.start_server(lambda _, writer: writer.close(), HERE, 0)
        stack.callback(grpc.close)
        found: list[Scene] = []
        desk = ProbeDesk(
            peers, sealer=sealer, clock=SystemClock(), describe=lambda: found[0].describe()
        )
        pages = Pages(dict, list, CollectorRegistry())
        web = WebServer(Endpoint(HERE, 0), pages, sealed={PROBE_PATH: desk.handle})
        await stack.enter_async_context(udp)
        await stack.enter_async_context(web)
        ports = {
            "http": web.endpoint.port,
            "udp": udp.endpoint.port,
            "grpc": grpc.sockets[0].getsockname()[1],
        }
        found.append(Scene(web, udp, grpc, peers, ports))
        yield found[0]


async def look(
    trackers: list[str], peers: list[str] | None = None, lookup: object = None
) -> dict[str, str]:
    """The worst line of each check."""
    hints = read_hints(trackers, peers or [])
    explored: Explored = await explore(hints, SEALER, SystemClock(), lookup or NameLookup())  # type: ignore[arg-type]
    order = ("skip", "ok", "warn", "fail")
    found: dict[str, str] = {}
    for finding in judge_ways(explored, []):
        worst = found.get(finding.check, "skip").split()[0]
        if finding.check not in found or order.index(finding.level) > order.index(worst):
            found[finding.check] = str(finding)
    return found


async def test_a_node_of_which_everything_is_open():
    async with scene() as node:
        found = await look([node.url])
    assert found["peers"].startswith("ok")
    assert f"gRPC {node.ports['grpc']} is open" in found["peers"]
    assert f"datagrams pass at {node.ports['udp']}" in found["peers"]
    assert found["mtu"].startswith("ok")
    assert "own address 127.0.0.1" in found["nat"]
    assert found["dns"].startswith("skip")


async def test_a_node_that_another_knows_is_asked_too():
    async with scene() as node, scene() as other:
        clock = SystemClock()
        record = OwnRecord(NodeKey.generate(), other.describe).make(clock.wall())
        assert node.peers.observe(record, other.describe(), clock.monotonic(), host_seen=HERE)
        hints = read_hints([node.url])
        explored = await explore(hints, SEALER, clock, NameLookup())
    ways = explored.ways
    assert [way.target.is_given for way in ways] == [True, False]
    assert ways[1].target.endpoint == Endpoint(HERE, other.ports["http"])
    seen = [way.echoed.observed for way in ways if way.echoed is not None]
    assert seen[0] == seen[1], "one socket, without a router between"


async def test_closed_ports_are_named():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind((HERE, 0))
        async with scene() as node:
            node.ports["grpc"] = NOBODY_PORT
            node.ports["udp"] = deaf.getsockname()[1]
            found = await look([node.url])
    assert found["peers"].startswith("fail")
    assert "gRPC at 1 does not (connection refused)" in found["peers"]
    assert f"no datagram at {node.ports['udp']}" in found["peers"]
    assert f"let TCP 1 and UDP {node.ports['udp']} of {HERE} through" in found["peers"]
    assert found["mtu"].startswith("ok")


async def test_another_token():
    async with scene(Sealer(b"x" * 32)) as node:
        found = await look([node.url])
    assert found["peers"].startswith("fail")
    assert "refuses this swarm token" in found["peers"]
    assert found["nat"].startswith("skip")


async def test_nobody_there_and_something_else_there():
    pages = Pages(dict, list, CollectorRegistry())
    async with WebServer(Endpoint(HERE, 0), pages) as other:
        nobody = await look([f"http://{HERE}:{NOBODY_PORT}"])
        else_ = await look([f"http://{other.endpoint}"])
    assert "connection refused -> start the node" in nobody["peers"]
    assert "(HTTP 404) -> correct the port" in else_["peers"]


async def test_a_peer_by_its_heartbeat_port():
    async with scene() as node:
        found = await look([], [f"{HERE}:{node.ports['udp']}"])
    assert found["peers"].startswith("ok")
    assert "answers datagrams" in found["peers"]


async def test_names():
    async def lookup(host: str) -> tuple[str, ...]:
        if host == "two.lan":
            return (HERE, "127.0.0.2")
        raise PeerUnreachable(f"unknown host {host}")

    async with scene() as node:
        port = node.ports["http"]
        found = await look([], [f"dns://two.lan:{port}", "gone.lan"], lookup)
    assert found["dns"].startswith("fail")
    assert "unknown host gone.lan" in found["dns"]
    assert "127.0.0.2" in found["peers"], "every address of a name is asked"


HOLE_SCRIPT = """
ip link set lo mtu 1500 up
iptables -w -A OUTPUT -m length --length 1301: -j DROP
: > "$3"
"$1" -m neuroswarm tracker --host 127.0.0.1 --port 7100 --token-file "$2" 2> "$3" &
tracker=$!
trap 'kill $tracker' EXIT
until grep -q listens "$3"; do kill -0 $tracker || exit 99; read -r -t 0.2 < /dev/zero || :; done
shift 3
"$@"
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * DEADLINE_S)
def test_a_black_hole(tmp_path: Path):
    probe = "ip link set lo mtu 1500 up && iptables -w -A OUTPUT -m length --length 1301: -j DROP"
    require(["unshare", "-n", "sh", "-c", probe], "packet filters")
    token = tmp_path / "token"
    done = run_neuroswarm("token", "new", "--out", str(token))
    assert done == 0
    found = run_doctor(
        "--quick", "--token-file", str(token), "--tracker", "http://127.0.0.1:7100",
        shown="neuroswarm doctor --quick --token-file token --tracker http://127.0.0.1:7100",
        before=["unshare", "-n", "bash", "-c", HOLE_SCRIPT, "bash", sys.executable, str(token),
                str(tmp_path / "log")],
        folder=tmp_path,
    )  # fmt: skip
    assert found.code == 70, found
    (line,) = found.of("mtu")
    assert "black hole suspected" in line
    assert "64 KiB to it over TCP: no answer in 4 s" in line
    compare("black-hole", found, ["mtu", "peers"])


def run_neuroswarm(*arguments: str) -> int:
    from neuroswarm.cli.main import run

    return run(arguments)


def test_json_is_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    code = run_neuroswarm(
        "doctor", "--quick", "--json", "--state-dir", str(tmp_path), "--port", "0",
        "--tracker", f"http://{HERE}:{NOBODY_PORT}",
    )  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert code == 70
    assert not report["is_healthy"]
    assert {"dns", "peers", "mtu", "nat", "reachable"} <= {r["check"] for r in report["findings"]}
