"""`neuroswarm doctor` in the troubles that docs/doctor.md shows; the page is made here."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from doctor_scene import DEADLINE_S, compare, require, run_doctor
from prometheus_client import CollectorRegistry

from neuroswarm.clock import Clock
from neuroswarm.discovery.probe_desk import ProbeDesk
from neuroswarm.hardware.interfaces import read_interfaces
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.sealing import Sealer
from neuroswarm.identity.token import SwarmToken
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.shifted_clock import ShiftedClock
from neuroswarm.values import Endpoint
from neuroswarm.web.server import Pages, WebServer
from neuroswarm.wire.probes import PROBE_PATH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE_S)]
HOURS_AHEAD = 3
"""That the tracker's clock is before this machine's."""


@pytest.fixture(scope="module")
def token() -> SwarmToken:
    return SwarmToken.new()


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory, token: SwarmToken) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(token.text)
    return path


@contextmanager
def running_node(folder: Path, token_file: Path) -> Iterator[str]:
    """A small node on this machine, with its address as others give it."""
    text = folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
    arguments = node_arguments(folder / "state", text)
    command = [sys.executable, "-m", "neuroswarm", *arguments, "--token-file", str(token_file)]
    kept = {name: value for name, value in os.environ.items() if "NEUROSWARM" not in name}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=kept)
    assert process.stderr is not None
    drain = threading.Thread(target=process.stderr.read)  # a full pipe would stop the node
    try:
        for line in process.stderr:
            if found := re.search(r"others join with --tracker (http://\S+)", line):
                drain.start()
                yield found[1]
                break
        else:
            pytest.fail(f"the node ended with {process.wait()}")
    finally:
        process.kill()
        process.wait()
        if drain.is_alive():
            drain.join()
        process.stderr.close()


def test_a_healthy_machine(tmp_path: Path, token_file: Path):
    if not read_interfaces():
        pytest.skip("this machine has no network")
    with running_node(tmp_path, token_file) as url:
        found = run_doctor(
            "--token-file", str(token_file), "--tracker", url,
            shown=f"neuroswarm doctor --token-file token --tracker {url}", folder=tmp_path,
        )  # fmt: skip
    assert found.code == 0, found
    for check in ("torch", "memory", "network"):
        assert found.level(check) in ("ok", "warn")
    for check in ("clock", "ports", "token", "peers", "mtu", "nat", "reachable"):
        assert found.level(check) == "ok", found
    compare("healthy", found, ["clock", "token", "peers", "mtu", "nat", "reachable"])


def test_without_network(tmp_path: Path):
    require(["unshare", "-n", "true"], "network namespaces")
    found = run_doctor(
        "--quick", "--tracker", "http://10.0.0.5:7101", "--peer", "node.example",
        shown="neuroswarm doctor --quick --tracker http://10.0.0.5:7101 --peer node.example",
        before=["unshare", "-n"], folder=tmp_path,
    )  # fmt: skip
    assert found.code == 70
    for check in ("network", "dns", "peers"):
        assert found.level(check) == "fail"
    compare("without-network", found, ["network", "dns", "peers", "mtu", "nat", "reachable"])


async def test_a_wrong_clock(tmp_path: Path, token: SwarmToken, token_file: Path):
    clock = ShiftedClock(wall_offset_s=3600.0 * HOURS_AHEAD)
    async with tracker_with_clock(token, clock) as url:
        found = await asyncio.to_thread(
            run_doctor,
            "--quick", "--token-file", str(token_file), "--tracker", url,
            shown=f"neuroswarm doctor --quick --token-file token --tracker {url}", folder=tmp_path,
        )  # fmt: skip
    assert found.code == 70
    (line,) = found.of("clock")
    assert line.startswith("fail")
    assert f"{HOURS_AHEAD}.0 hours behind the clock of tracker {url}" in line
    assert "timedatectl set-ntp true" in line
    assert found.level("peers") == "ok"
    compare("wrong-clock", found, ["clock", "peers"])


def test_the_memory_limit_of_a_container(tmp_path: Path):
    """A mount namespace in which the control group's files say what Docker's say."""
    require(["unshare", "-m", "true"], "mount namespaces")
    files = {"memory.max": 512 * 2**20, "memory.current": 96 * 2**20}
    writes = [f"echo {value} > /sys/fs/cgroup/{name}" for name, value in files.items()]
    script = " && ".join(["mount -t tmpfs none /sys/fs/cgroup", *writes, 'exec "$@"'])
    found = run_doctor(
        "--quick", shown="neuroswarm doctor --quick",
        before=["unshare", "-m", "sh", "-c", script, "sh"], folder=tmp_path,
    )  # fmt: skip
    assert found.code == 70
    (line,) = found.of("memory")
    assert line.startswith("fail")
    assert "436 MB free, the control group's limit is 537 MB" in line
    assert "docker run --memory 800m" in line
    compare("memory-limit", found, ["memory"])


def test_a_limit_of_the_address_space(tmp_path: Path):
    """A limit that the kernel holds torch to."""
    space = str(700_000_000)
    require(["prlimit", f"--as={space}", "true"], "limits of a process")
    found = run_doctor(
        shown="ulimit -v 683593; neuroswarm doctor",
        before=["prlimit", f"--as={space}"], folder=tmp_path,
    )  # fmt: skip
    assert found.code == 70
    for check in ("torch", "memory"):
        assert found.level(check) == "fail"
    assert "address space is limited to 700 MB" in found.of("memory")[0]
    compare("address-space", found, ["memory"])


@asynccontextmanager
async def tracker_with_clock(token: SwarmToken, clock: Clock) -> AsyncIterator[str]:
    """A tracker whose machine has another time."""
    sealer = Sealer(token.datagram_key)
    desk = ProbeDesk(PeerTable(NodeKey.generate().node_id, 5.0), sealer=sealer, clock=clock)
    pages = Pages(dict, list, CollectorRegistry())
    server = WebServer(Endpoint("127.0.0.1", 0), pages, sealed={PROBE_PATH: desk.handle})
    async with server:
        yield f"http://{server.endpoint}"
