"""What a service manager is told, over a real socket, and that nothing comes of a deaf one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroswarm.cli.notify import Herald, Notifier

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
DEADLINE_S = 20.0


class Manager:
    """The other end of the socket."""

    def __init__(self, address: str) -> None:
        self.end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.end.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.end.settimeout(DEADLINE_S)

    def hear(self) -> dict[str, str]:
        lines = self.end.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def drain(self) -> None:
        """Take all that has come so far."""
        self.end.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.end.recv(4096):
                pass

    async def hear_of(self, name: str) -> dict[str, str]:
        """The next telling with that field."""
        while name not in (told := await asyncio.to_thread(self.hear)):
            pass
        return told


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.chdir(tmp_path)  # the path of a Unix socket is short
    address = str(tmp_path / "notify")
    made = Manager(address)
    with made.end:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield made


def test_lines_arrive_as_one_datagram(manager: Manager):
    Notifier.of_environment(os.environ).tell(READY=1, STATUS="two\nlines\x00 of it")
    assert manager.hear() == {"READY": "1", "STATUS": "two lines\x00 of it"}


@pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="abstract names are Linux's")
def test_a_name_in_the_abstract_namespace_is_reached():
    address = f"@neuroswarm-test-{os.getpid()}"
    manager = Manager(address)
    with manager.end:
        Notifier.of_environment({"NOTIFY_SOCKET": address}).tell(READY=1)
        assert manager.hear() == {"READY": "1"}


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative/path"])
def test_without_a_socket_nobody_is_told(address: str):
    notifier = Notifier.of_environment({"NOTIFY_SOCKET": address})
    assert not notifier.is_heard
    notifier.tell(READY=1)


def test_a_manager_that_is_gone_is_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    notifier = Notifier(str(tmp_path / "nobody"))
    notifier.tell(READY=1)
    notifier.tell(READY=1)
    assert caplog.text.count("cannot be told: No such file or directory") == 1


def test_a_socket_that_cannot_be_is_complained_of_by_what_is_wrong(
    caplog: pytest.LogCaptureFixture,
):
    Notifier("/" + 300 * "x").tell(READY=1)
    assert "cannot be told: AF_UNIX path too long" in caplog.text


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "120000000"}, 120.0),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(os.getpid())}, 120.0),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "9" * 5000}, None),
        ({}, None),
    ],
)
def test_a_watchdog_counts_if_it_is_for_this_process(
    environment: dict[str, str], watchdog_s: float | None
):
    assert Notifier.of_environment(environment).watchdog_s == watchdog_s


async def test_a_service_is_told_of_from_its_start_to_its_end(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    phase = "joining"
    async with Herald(Notifier.of_environment(os.environ), lambda: phase) as herald:
        starting = await asyncio.to_thread(manager.hear)
        assert starting["STATUS"] == "joining"
        assert int(starting["EXTEND_TIMEOUT_USEC"]) > 0
        assert "WATCHDOG" not in starting
        phase = "round 7"
        herald.ready()
        assert (await manager.hear_of("READY"))["STATUS"] == "round 7"
        for _ in range(3):
            assert (await manager.hear_of("WATCHDOG"))["STATUS"] == "round 7"
        herald.stopping(80.0)
        stopping = await manager.hear_of("STOPPING")
        assert stopping["EXTEND_TIMEOUT_USEC"] == "80000000"
        assert "WATCHDOG" not in stopping


async def test_a_loop_that_hangs_gives_no_sign_of_life(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    async with Herald(Notifier.of_environment(os.environ), lambda: "") as herald:
        herald.ready()
        await manager.hear_of("WATCHDOG")
        manager.drain()
        manager.end.settimeout(0.5)
        with pytest.raises(TimeoutError):
            manager.hear()  # blocks the loop, which would have told ten times meanwhile
