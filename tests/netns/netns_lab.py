"""A small internet of network namespaces: public machines, and others behind routers with NAT.

Needs root, iproute2 and nftables. No namespace has a link to the machine's own network.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuroswarm.testing.node_process import TINY_SETTINGS
from neuroswarm.testing.waiting import wait_until

MASQUERADE = "masquerade"
"""Keeps a machine's port where it can: one hole serves all who are outside."""

SYMMETRIC = "masquerade random,fully-random"
"""Draws another port for every destination: a hole serves only the one it was made for."""

TOOLS = ("ip", "nft", "sysctl")
SETTINGS = {
    "heartbeat.interval_s": 2.0,
    "rounds.genesis_wait_s": 60.0,
    "rounds.min_grace_s": 1.5,
    "rounds.patience_s": 1.0,
}
"""Longer rounds than those of other tests: some statements go by way of a third node."""

DEADLINE_S = 600
"""For anything that is waited for: whole processes on a busy machine."""

_READ_PAGE = (
    "import sys, urllib.request; "
    "sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
)
_numbers = itertools.count()


@functools.cache
def find_obstacle() -> str:
    """Why no lab can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)} (Debian: iproute2, nftables, procps)"
    try:
        with lab() as made:
            made.router("probe", MASQUERADE)
    except subprocess.CalledProcessError as error:
        return f"this kernel refuses: {' '.join(error.cmd)}: {error.stderr.strip()}"
    return ""


def run(*command: str, text: str | None = None) -> str:
    """Carry out a command; CalledProcessError if it fails."""
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
    return done.stdout


@dataclass(eq=False)
class Machine:
    """One namespace with its address, the process in it, and what it says of itself."""

    namespace: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def exec(self, *command: str, text: str | None = None) -> str:
        """Carry out a command on this machine."""
        return run("ip", "netns", "exec", self.namespace, *command, text=text)

    @property
    def log(self) -> str:
        """What its process has written."""
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def status(self, page: str = "status") -> Any:
        """What its node says of itself; empty while it does not."""
        url = f"http://127.0.0.1:7101/{page}"
        try:
            return json.loads(self.exec(sys.executable, "-c", _READ_PAGE, url))
        except subprocess.CalledProcessError:
            return {}

    def commits(self) -> list[dict[str, Any]]:
        """The commits in its event log; a line that is being written is left for later."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == "commit"]

    def start(self, *arguments: str) -> None:
        """Run `neuroswarm` with these arguments."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_python(sys.executable, "-m", "neuroswarm", *arguments)

    def run_python(self, *command: str) -> None:
        """Run a command beside the test, with its output in the log."""
        inside = ["ip", "netns", "exec", self.namespace, *command]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(inside, stdout=log, stderr=log, env=environment)

    def start_node(self, text: Path, *trackers: Machine) -> None:
        """Run a small node that asks these machines for peers."""
        settings = {n: v for n, v in TINY_SETTINGS.items() if n != "network.announce_host"}
        settings |= SETTINGS
        arguments = ["node", "--host", "0.0.0.0", "--state-dir", str(self.folder)]
        arguments += ["--data", str(text)]
        for tracker in trackers:
            arguments += ["--tracker", f"http://{tracker.address}:7101"]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        self.start(*arguments)

    def leave(self) -> None:
        """Have its process stop in good order."""
        assert self.process is not None, "it runs"
        self.process.terminate()
        self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        """End its process, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Lab:
    """All namespaces of one test."""

    folder: Path = Path("/tmp")
    name: str = field(default_factory=lambda: f"nsw{os.getpid()}-{next(_numbers)}")
    machines: dict[str, Machine] = field(default_factory=dict)

    def _add(self, name: str, address: str) -> Machine:
        namespace = f"{self.name}-{name}"
        run("ip", "netns", "add", namespace)
        machine = self.machines[name] = Machine(namespace, address, self.folder / name)
        machine.exec("ip", "link", "set", "lo", "up")
        return machine

    def begin(self) -> None:
        """Make the middle, a switch that joins all public machines."""
        middle = self._add("middle", "")
        middle.exec("ip", "link", "add", "switch", "type", "bridge")
        middle.exec("ip", "link", "set", "switch", "up")

    def public(self, name: str) -> Machine:
        """A machine that everybody reaches, at 203.0.113.x."""
        machine = self._add(name, f"203.0.113.{len(self.machines) + 9}")
        self._plug(machine, name)
        machine.exec("ip", "addr", "add", f"{machine.address}/24", "dev", "wan")
        machine.exec("ip", "link", "set", "wan", "up")
        return machine

    def router(self, name: str, nat: str) -> Machine:
        """A machine behind a router of its own, at 10.x.0.2."""
        number = len(self.machines)
        router = self.public(f"{name}-router")
        router.exec("ip", "link", "add", "lan", "type", "bridge")
        router.exec("ip", "addr", "add", f"10.{number}.0.1/24", "dev", "lan")
        router.exec("ip", "link", "set", "lan", "up")
        router.exec("sysctl", "-qw", "net.ipv4.ip_forward=1")
        router.exec("nft", "-f", "-", text=_rules(nat))
        return self._add_behind(router, name, f"10.{number}.0.2")

    def neighbour(self, name: str, other: Machine) -> Machine:
        """A machine behind the same router as another one, at 10.x.0.3."""
        of = next(known for known, machine in self.machines.items() if machine is other)
        address = other.address.rpartition(".")[0] + ".3"
        return self._add_behind(self.machines[f"{of}-router"], name, address)

    def _add_behind(self, router: Machine, name: str, address: str) -> Machine:
        inside, port = self._add(name, address), _port_of(name)
        router.exec("ip", "link", "add", port, "type", "veth", "peer", "name", "eth", "netns",
                    inside.namespace)  # fmt: skip
        router.exec("ip", "link", "set", port, "master", "lan", "up")
        inside.exec("ip", "addr", "add", f"{address}/24", "dev", "eth")
        inside.exec("ip", "link", "set", "eth", "up")
        inside.exec("ip", "route", "add", "default", "via", address.rpartition(".")[0] + ".1")
        return inside

    def pull_cable(self, machine: Machine) -> None:
        """Take a public machine off the net: nobody is told, everything to and from it is lost."""
        name = next(name for name, known in self.machines.items() if known is machine)
        self.machines["middle"].exec("ip", "link", "set", _port_of(name), "down")

    def end(self) -> None:
        """Kill what runs, and take all namespaces away."""
        for machine in self.machines.values():
            machine.kill()
        for machine in self.machines.values():
            subprocess.run(["ip", "netns", "del", machine.namespace], check=False)

    def _plug(self, machine: Machine, name: str) -> None:
        middle, port = self.machines["middle"], _port_of(name)
        middle.exec("ip", "link", "add", port, "type", "veth", "peer", "name", "wan", "netns",
                    machine.namespace)  # fmt: skip
        middle.exec("ip", "link", "set", port, "master", "switch", "up")


@contextmanager
def lab(folder: Path = Path("/tmp")) -> Iterator[Lab]:
    """A lab that is gone afterwards."""
    made = Lab(folder)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def wait_for(condition: Any, *machines: Machine) -> None:
    """Wait for a condition while none of the machines' processes ends; tell their logs if not."""

    def holds() -> bool:
        ended = [m for m in machines if m.process is not None and m.process.poll() is not None]
        assert not ended, f"ended: {[(m.address, m.log[-2000:]) for m in ended]}"
        return bool(condition())

    try:
        wait_until(holds, within_s=DEADLINE_S)
    except TimeoutError as error:
        told = "\n".join(f"--- {m.address}\n{m.log[-3000:]}" for m in machines)
        raise AssertionError(f"{error}\n{told}") from error


def _port_of(name: str) -> str:
    return "p-" + re.sub("router", "r", name)[:12]


def _rules(nat: str) -> str:
    """Nothing comes in that was not asked for; what goes out gets the router's address."""
    return f"""
table ip router {{
  chain forward {{
    type filter hook forward priority 0; policy drop;
    iifname "lan" accept
    ct state established,related accept
  }}
  chain out {{
    type nat hook postrouting priority 100;
    oifname "wan" {nat}
  }}
}}
"""
