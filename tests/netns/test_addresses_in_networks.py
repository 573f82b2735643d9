"""Addresses in real networks: two machines as network namespaces, joined by a cable.

Needs root and iproute2; no namespace has a link to this machine's own network.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.testing.waiting import wait_until

NODE = Path(__file__).parent / "address_node.py"
WITHIN_S = 60.0
_names = (f"nsaddr{os.getpid() % 10_000}{letter}" for letter in itertools.cycle("ab"))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def find_obstacle() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "not installed: ip (Debian: iproute2)"
    try:
        probe = next(_names)  # other tests look at the same time
        run("ip", "netns", "add", probe)
        run("ip", "netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"this kernel refuses namespaces: {error.stderr.strip()}"
    return ""


OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE)


class Machine:
    """One namespace, and the process in it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.name = next(_names)
        self._stack = stack
        self._log = folder / f"{self.name}.log"
        run("ip", "netns", "add", self.name)
        stack.callback(run, "ip", "netns", "del", self.name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *command: str) -> None:
        run("ip", "-n", self.name, *command)

    def add_interface(self, name: str, address: str) -> None:
        """An interface that leads nowhere."""
        end = f"{name}-end"  # a pair: not every kernel has dummies
        self.ip("link", "add", name, "type", "veth", "peer", "name", end)
        self.ip("addr", "add", address, "dev", name)
        for each in (name, end):
            self.ip("link", "set", each, "up")

    def start(self, *arguments: str) -> None:
        with self._log.open("w") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, str(NODE), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def knows(self) -> dict[str, Any]:
        """The last line that the process has written whole."""
        lines = self._log.read_text().split("\n")[:-1] if self._log.exists() else []
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return told[-1] if told else {"hosts": [], "peers": []}

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        try:
            wait_until(lambda: condition(self.knows()), within_s=WITHIN_S)
        except TimeoutError:
            pytest.fail(f"{self.name} knows {self.knows()}\n{self._log.read_text()[-2000:]}")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines with a cable between them: 10.77.0.1 and 10.77.0.2."""
    with ExitStack() as stack:
        one, two = Machine(stack, tmp_path), Machine(stack, tmp_path)
        cable = ("eth0", "netns", one.name, "type", "veth", "peer", "eth0", "netns", two.name)
        run("ip", "link", "add", *cable)
        for machine, address in ((one, "10.77.0.1/24"), (two, "10.77.0.2/24")):
            machine.ip("addr", "add", address, "dev", "eth0")
            machine.ip("link", "set", "eth0", "up")
        yield one, two


def hosts_of_peer(knows: dict[str, Any]) -> list[str]:
    return [host for peer in knows["peers"] for host in peer["hosts"]]


def test_the_address_on_the_route_is_told_never_a_bridge_or_loopback(machines):
    one, two = machines
    one.add_interface("docker0", "172.17.0.1/16")
    one.add_interface("br-5f3c", "172.18.0.1/16")
    one.add_interface("veth77", "172.19.0.1/16")
    one.start("10.77.0.2", "172.17.0.5", "172.18.0.5", "172.19.0.5", "127.0.0.1")
    two.start("-")
    two.until(lambda knows: hosts_of_peer(knows) == ["10.77.0.1"])
    one.until(lambda knows: hosts_of_peer(knows) == ["10.77.0.2"])
    assert one.knows()["hosts"] == ["10.77.0.1"]


def test_a_change_of_address_is_followed(machines):
    one, two = machines
    one.start("10.77.0.2")
    two.start("-")
    two.until(lambda knows: hosts_of_peer(knows) == ["10.77.0.1"])
    one.ip("addr", "add", "10.77.0.9/24", "dev", "eth0")
    one.ip("addr", "del", "10.77.0.1/24", "dev", "eth0")
    if not has_address(one):
        one.ip("addr", "add", "10.77.0.9/24", "dev", "eth0")
    two.until(lambda knows: [peer["host"] for peer in knows["peers"]] == ["10.77.0.9"])
    two.until(lambda knows: knows["peers"][0]["seen"] == "10.77.0.9")
    one.until(lambda knows: hosts_of_peer(knows) == ["10.77.0.2"])


def has_address(machine: Machine) -> bool:
    """Whether removing the first address took the second one with it."""
    shown = subprocess.run(
        ["ip", "-n", machine.name, "addr", "show", "dev", "eth0"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return "10.77.0.9" in shown.stdout


def test_a_network_that_comes_up_late_is_noticed(machines):
    one, two = machines
    one.ip("link", "set", "eth0", "down")
    one.start("10.77.0.2")
    one.until(lambda knows: knows["hosts"] == ["127.0.0.1"])
    two.start("-")
    one.ip("link", "set", "eth0", "up")
    two.until(lambda knows: hosts_of_peer(knows) == ["10.77.0.1"])


def test_answers_leave_from_the_address_that_was_dialled(machines):
    one, two = machines
    one.ip("addr", "add", "10.77.0.50/24", "dev", "eth0")
    one.start("-")
    two.start("10.77.0.50")
    two.until(lambda knows: [peer["seen"] for peer in knows["peers"]] == ["10.77.0.50"])


def test_a_peer_with_two_addresses_is_reached_at_the_one_that_works(machines):
    one, two = machines
    for machine, address in ((one, "fd77::1/64"), (two, "fd77::2/64")):
        machine.ip("-6", "addr", "add", address, "dev", "eth0", "nodad")
    one.start("10.77.0.2", "fd77::2")
    two.start("-")
    two.until(lambda knows: set(hosts_of_peer(knows)) == {"10.77.0.1", "fd77::1"})
    one.until(lambda knows: len(knows["peers"]) == 1)
