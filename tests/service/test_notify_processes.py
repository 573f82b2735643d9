"""A node as systemd starts it: what it tells over the socket, until it is asked to stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neuroswarm.testing.node_process import node_arguments

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
DEADLINE_S = 150.0


def hear(end: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in end.recv(4096).decode().splitlines())


def hear_of(end: socket.socket, name: str, value: str = "") -> dict[str, str]:
    """The next telling with that field."""
    while name not in (told := hear(end)) or not re.search(value, told[name]):
        assert "STOPPING" not in told, "it has stopped"
    return told


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
def test_a_node_tells_when_it_takes_part_that_it_lives_and_that_it_stops(tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    command = [sys.executable, "-m", "neuroswarm", *node_arguments(tmp_path / "state", text)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    environment |= {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "4000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "n"))
        end.settimeout(DEADLINE_S)
        node = subprocess.Popen([*command, "--no-lan"], stderr=subprocess.PIPE, env=environment)
        try:
            loading = hear(end)
            assert loading["STATUS"] == "loading"
            assert int(loading["EXTEND_TIMEOUT_USEC"]) > 0
            assert "EXTEND_TIMEOUT_USEC" in hear(end), "it still starts"
            assert re.match(r"round \d+, .*, 0 peers", hear_of(end, "READY")["STATUS"])
            hear_of(end, "STATUS", r"round [1-9]\d*, loss \d\.\d+, 0 peers")
            for _ in range(2):
                assert hear_of(end, "WATCHDOG")["WATCHDOG"] == "1"
            node.send_signal(signal.SIGTERM)
            while "STOPPING" not in (told := hear(end)):
                pass
            assert "WATCHDOG" not in told
            _, said = node.communicate(timeout=DEADLINE_S)
            assert node.returncode == 0, said
        finally:
            node.kill()
            node.communicate()
