"""Connections beyond the limit of open files: told in one line, over with the flood."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Iterator

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.identity.token import SwarmToken
from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.net.exhaustion import AcceptComplaints, quiet_accepting
from neuroswarm.node.carriers import NetworkCarriers
from neuroswarm.testing.fake_clock import FakeClock

CONFIG = SwarmNodeConfig(
    network={"host": "127.0.0.1", "port": 0, "grpc_port": 0}, heartbeat={"port": 0}
)


class Told(logging.Handler):
    """Notes that something was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, _record: logging.LogRecord) -> None:
        self.event.set()


@pytest.fixture
def told() -> Iterator[Told]:
    handler, logger = Told(), logging.getLogger("neuroswarm.net.exhaustion")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def count_open() -> int:
    probe = socket.socket()
    number = probe.fileno()
    probe.close()
    return number


@pytest.fixture
def soft_limit() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("soft_limit")
async def test_a_flood_at_the_limit_of_open_files_is_one_line(
    told: Told, caplog: pytest.LogCaptureFixture
):
    async with NetworkCarriers(NodeKey.generate(), TokenRing(SwarmToken(bytes(32))), CONFIG):
        served = asyncio.Event()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            served.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            clients = [socket.socket() for _ in range(30)]
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (count_open(), hard))
            for client in clients:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            await asyncio.wait_for(told.event.wait(), 10)
            for client in clients:
                client.close()
            await asyncio.wait_for(served.wait(), 10)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in lines] == ["neuroswarm.net.exhaustion"]
    assert lines[0].exc_info is None
    assert "connections not accepted: Too many open files" in lines[0].getMessage()


async def test_refused_connections_are_told_once_a_minute_and_all_else_as_ever(
    caplog: pytest.LogCaptureFixture,
):
    clock, loop = FakeClock(), asyncio.get_running_loop()
    complaints = AcceptComplaints(clock)
    full = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    for _ in range(1000):
        complaints(loop, full)
    assert len(caplog.messages) == 1
    await clock.advance(60.0)
    complaints(loop, full)
    assert "tried 1000 times" in caplog.messages[1]
    complaints(loop, {"message": "a bug", "exception": ValueError("x")})
    assert caplog.records[2].name == "asyncio"


async def test_a_handler_of_the_loops_owner_stays():
    loop = asyncio.get_running_loop()
    seen: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: seen.append(context))
    with quiet_accepting(FakeClock()):
        loop.call_exception_handler({"message": "x"})
    assert len(seen) == 1
    loop.set_exception_handler(None)
    with quiet_accepting(FakeClock()):
        assert isinstance(loop.get_exception_handler(), AcceptComplaints)
    assert loop.get_exception_handler() is None
