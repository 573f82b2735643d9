"""A node answers for its life before its libraries are there."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from neuroswarm.demo.launch import choose_ports
from neuroswarm.errors import ConfigError
from neuroswarm.testing.waiting import wait_until
from neuroswarm.values import Endpoint
from neuroswarm.web.first_answers import FirstAnswers, bind_http
from neuroswarm.web.server import Pages, WebServer

HOST = "127.0.0.1"
HERE = Endpoint(HOST, 0)
START_S = 120.0


@pytest.fixture
def first() -> Iterator[FirstAnswers]:
    with FirstAnswers(HERE) as made:
        yield made


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection((HOST, port), timeout=START_S) as caller:
        caller.sendall(request)
        return caller.makefile("rb").read()


def test_it_lives_and_is_not_ready(first: FirstAnswers):
    live = ask(first.port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert live.startswith(b"HTTP/1.1 200 OK\r\n")
    assert live.endswith(b"\r\n\r\nok\n")
    assert ask(first.port, b"GET /readyz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    "request_", [b"GET /status HTTP/1.1\r\n\r\n", b"POST /livez HTTP/1.1\r\n\r\n", b"\x00", b"GET "]
)
def test_all_else_is_closed_unanswered(first: FirstAnswers, request_: bytes):
    assert ask(first.port, request_) == b""


def test_who_connects_and_says_nothing_is_not_waited_for(first: FirstAnswers):
    with socket.create_connection((HOST, first.port)), socket.create_connection((HOST, first.port)):
        assert ask(first.port, b"GET /livez HTTP/1.1\r\n\r\n").endswith(b"ok\n")


async def test_the_server_takes_over_on_the_same_port(first: FirstAnswers):
    port = first.port
    pages = Pages(dict, list, CollectorRegistry())
    async with (
        WebServer(HERE, pages, bind=first.take) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{HOST}:{port}/readyz") as answer,
    ):
        assert server.endpoint.port == port
        assert answer.status == 200


def test_a_second_server_binds_anew(first: FirstAnswers):
    with first.take(HERE) as taken, first.take(HERE) as again:
        assert taken.getsockname() != again.getsockname()


def test_another_address_is_bound_anew_and_the_first_one_given_up(first: FirstAnswers):
    port = first.port
    with first.take(Endpoint("localhost", 0)) as other:
        assert other.getsockname()[1] != port
        with bind_http(Endpoint(HOST, port)):
            pass


def test_a_port_in_use_is_said(first: FirstAnswers):
    with pytest.raises(ConfigError, match=f"port in use: {first.port} .* with --port"):
        FirstAnswers(Endpoint(HOST, first.port))


@pytest.mark.slow
@pytest.mark.timeout(START_S + 60)
def test_a_node_lives_while_torch_is_being_imported(tmp_path: Path):
    """Torch is one whose import never ends: it waits at a pipe to which nobody writes."""
    (ports,) = choose_ports(1)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'pipe')!r}).read()\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    paths = [str(tmp_path), environment.get("PYTHONPATH", "")]
    flags = ["--host", HOST, "--no-lan", "--state-dir", str(tmp_path / "state")]
    flags += ["--port", str(ports.http), "--grpc-port", str(ports.grpc)]
    node = subprocess.Popen(
        [sys.executable, "-m", "neuroswarm", "node", *flags],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stderr=subprocess.DEVNULL,
    )

    def lives() -> bool:
        assert node.poll() is None, f"ended with {node.returncode}"
        connection = http.client.HTTPConnection(HOST, ports.http, timeout=START_S)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except ConnectionError:
            return False
        finally:
            connection.close()

    try:
        wait_until(lives, within_s=START_S, what="/livez")
        node.send_signal(signal.SIGTERM)
        assert node.wait(START_S) == 0
    finally:
        node.kill()
        node.wait()
