"""`neuroswarm health` against real servers: a whole one, one that still loads, none."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from neuroswarm.cli.health_check import check
from neuroswarm.cli.main import run
from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until
from neuroswarm.values import Endpoint
from neuroswarm.web import early
from neuroswarm.web.server import Pages, WebServer

HERE = "127.0.0.1"
DEADLINE_S = 120

WAITS_FOR_TORCH = """
import importlib.abc, sys

class Gate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            sys.stdin.readline()
        return None

sys.meta_path.insert(0, Gate())
from neuroswarm.__main__ import main
main()
"""
"""The program, but for an import of torch that ends when somebody says so."""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def server() -> AsyncIterator[tuple[WebServer, list[bool]]]:
    ready = [True]
    pages = Pages(dict, list, CollectorRegistry(), lambda: ready[0])
    async with WebServer(Endpoint(HERE, 0), pages) as web:
        yield web, ready


async def ask(*arguments: str, **variables: object) -> tuple[int, str]:
    """The command as a process of its own: exit code, stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    environment |= {f"NEUROSWARM_{name}": str(value) for name, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "neuroswarm", "health", *arguments,
        stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_node_that_is_ready(server: tuple[WebServer, list[bool]]):
    port = server[0].endpoint.port
    assert await ask("--live", PORT=port) == (0, "")
    assert await ask(PORT=port, HOST="0.0.0.0") == (0, "")
    assert await ask(str(port)) == (0, "")
    assert await ask(f"http://{HERE}:{port}", "--live", "--timeout", "60") == (0, "")


async def test_node_that_lives_and_is_not_ready(server: tuple[WebServer, list[bool]]):
    web, ready = server
    ready[0] = False
    port = web.endpoint.port
    assert await ask("--live", NETWORK_PORT=port) == (0, "")
    said = f"neuroswarm: {HERE}:{port}/readyz answers 503: not ready\n"
    assert await ask(NETWORK_PORT=port) == (69, said)


async def test_nobody_there(port: int):
    said = f"neuroswarm: no node answers at {HERE}:{port}/livez: connection refused\n"
    assert await ask("--live", PORT=port) == (69, said)


def test_host_of_the_environment_that_is_none(capsys: pytest.CaptureFixture[str]):
    assert check(None, is_live=True, environment={"NEUROSWARM_HOST": "a..b"}) == 69
    assert "neuroswarm: no node answers at a..b:7101/livez: " in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "99999", "-1", "soon", "9" * 5000])
def test_port_of_the_environment_that_is_none(port: str, capsys: pytest.CaptureFixture[str]):
    assert check(None, is_live=True, environment={"NEUROSWARM_PORT": port}) == 78
    assert "NEUROSWARM_PORT must be 1 to 65535" in capsys.readouterr().err


def test_something_else_there(capsys: pytest.CaptureFixture[str]):
    with socket.create_server((HERE, 0)) as other:
        port = other.getsockname()[1]
        assert check(str(port), is_live=True, environment={}, timeout_s=0.2) == 69
        assert "no answer in time" in capsys.readouterr().err


def test_wrong_address_is_a_mistake_of_settings(capsys: pytest.CaptureFixture[str]):
    assert run(["health", "http://"]) == 78
    assert "no address of a node" in capsys.readouterr().err


@pytest.mark.parametrize("form", [["health", "--live"], ["health"]])
def test_containers_forms_import_next_to_nothing(form: list[str], port: int):
    """Not even the command line's library, let alone torch: it runs twice a minute on a Pi."""
    environment = {**os.environ, "NEUROSWARM_PORT": str(port)}
    command = [sys.executable, "-X", "importtime", "-m", "neuroswarm", *form]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 69
    imported = set(re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "neuroswarm.cli.health_check" in imported
    heavy = {"torch", "numpy", "typer", "pydantic", "asyncio", "aiohttp", "cryptography", "grpc"}
    assert not imported & heavy


@pytest.fixture
def answered(port: int) -> Iterator[Endpoint]:
    listen = Endpoint(HERE, port)
    with early.answering(listen):
        yield listen


def test_early_answers_say_live_and_not_ready(
    answered: Endpoint, capsys: pytest.CaptureFixture[str]
):
    place = str(answered)
    assert check(place, is_live=True, environment={}) == 0
    assert check(place, is_live=False, environment={}) == 69
    assert "answers 503: starting" in capsys.readouterr().err


def test_early_answers_bear_callers_that_say_nothing(answered: Endpoint):
    with ExitStack() as held:
        for _ in range(early.MAX_CALLERS + 20):
            held.enter_context(socket.create_connection((answered.host, answered.port)))
        assert check(str(answered), is_live=True, environment={}) == 0


def test_early_answers_bear_callers_that_say_too_much(answered: Endpoint):
    with socket.create_connection((answered.host, answered.port)) as caller:
        caller.sendall(b"x" * early.MAX_REQUEST_BYTES)
        assert caller.recv(100).startswith(b"HTTP/1.1 503")
    assert check(str(answered), is_live=True, environment={}) == 0


def test_early_answers_end_with_their_context(port: int, capsys: pytest.CaptureFixture[str]):
    with early.answering(Endpoint(HERE, port)):
        pass
    assert check(str(port), is_live=True, environment={}) == 69
    assert "connection refused" in capsys.readouterr().err


def test_taken_port_is_left_to_the_server(answered: Endpoint):
    with early.answering(answered):
        assert check(str(answered), is_live=True, environment={}) == 0


async def test_server_takes_over_without_a_gap(answered: Endpoint):
    """Who connected while nobody accepted is answered by the server."""
    async with WebServer(answered, Pages(dict, list, CollectorRegistry())) as web:
        assert web.endpoint == answered
        assert early.take_over(answered) is None, "it has been handed over"
        assert await ask(str(answered.port)) == (0, "")


def test_connections_made_in_between_wait(answered: Endpoint):
    kept = early.take_over(answered)
    assert kept is not None
    with kept, socket.create_connection((answered.host, answered.port)) as waiting:
        kept.setblocking(True)
        accepted, place = kept.accept()
        with accepted:
            assert place == waiting.getsockname()


@pytest.mark.slow
@pytest.mark.timeout(2 * DEADLINE_S)
def test_node_lives_before_torch_is_imported(tmp_path: Path, port: int):
    text = tmp_path / "text"
    text.write_text("all work and no play makes a dull node\n" * 3000)
    flags = node_arguments(tmp_path / "state", text)
    flags[flags.index("--port") + 1] = str(port)
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_TORCH, *flags, "--no-lan"],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None

        def answers(*, is_live: bool) -> bool:
            assert process.poll() is None
            return check(str(port), is_live=is_live, environment={}) == 0

        wait_until(lambda: answers(is_live=True), within_s=DEADLINE_S)
        assert not answers(is_live=False), "torch is not there yet"
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: answers(is_live=False), within_s=DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.communicate()
