"""`neuroswarm tracker` as a process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from neuroswarm.cli.main import run


@contextmanager
def tracker(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A tracker that listens, with its port."""
    command = [sys.executable, "-m", "neuroswarm", "tracker", "--host", "127.0.0.1", *flags]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"tracker listens on 127\.0\.0\.1:(\d+)", line):
                yield process, found[1]
                break
        else:
            pytest.fail(f"the tracker ended with {process.wait()}")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tracker_shows_its_status_and_leaves_gracefully(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
):
    with tracker("--port", "0") as (process, port):
        assert run(["status", port, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["role"] == "tracker"
        process.send_signal(number)
        assert process.wait() == 0


def test_taken_port_that_was_asked_for_is_named(capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["tracker", "--host", "127.0.0.1", "--port", str(port)]) == 78
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"neuroswarm: port {port} for HTTP is in use")
