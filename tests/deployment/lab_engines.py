"""Docker engines of a lab: each with a network of its own, as on as many machines.

Needs root, iproute2, iptables and Debian's docker.io. Refuses to know what runs on them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neuroswarm.testing.waiting import wait_until

NETWORK = "10.78.0"
HOST_ADDRESS = f"{NETWORK}.254"
BRIDGE = "nslab-br"
TOOLS = ("docker", "dockerd", "containerd", "ip", "iptables", "nsenter", "unshare", "sysctl")
START_S = 60.0
STOP_S = 30.0
CALL_S = 900.0
"""The longest call: building or loading an image on a busy machine."""

# sysfs is mounted anew so that it shows the namespace's interfaces, with the groups as they were
_START = """
hostname "$1"
mkdir -p "$2/cgroup"
mount --rbind /sys/fs/cgroup "$2/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$2/cgroup" /sys/fs/cgroup
exec dockerd --data-root "$2/data" --exec-root "$2/exec" --pidfile "$2/pid" -H "unix://$2/docker.sock"
"""


_Rule = Callable[[str], tuple[str, ...]]


class LabFailed(Exception):
    """Something of the lab itself does not work; says what."""


def call(
    *command: str,
    environment: dict[str, str] | None = None,
    text: str = "",
    folder: Path | None = None,
) -> str:
    """Run a program; LabFailed with what it said if it fails. Returns its output."""
    around = {**os.environ, **(environment or {})}
    done = subprocess.run(
        command,
        input=text, capture_output=True, text=True, check=False, env=around, timeout=CALL_S,
        cwd=folder,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise LabFailed(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Engine:
    """A Docker engine, by the address of its API."""

    number: int
    host: str

    def docker(
        self, *arguments: str, text: str = "", folder: Path | None = None, **environment: str
    ) -> str:
        """Run the docker client against it; LabFailed if that fails. Returns its output."""
        around = self.reach(environment)
        return call("docker", *arguments, environment=around, text=text, folder=folder)

    def reach(self, environment: dict[str, str]) -> dict[str, str]:
        """The variables for a client of this engine, with others."""
        return {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0", **environment}

    def answers(self) -> bool:
        """Whether the engine is up."""
        try:
            self.docker("version")
        except LabFailed:
            return False
        return True

    @property
    def address(self) -> str:
        """Where the others of its swarm reach it."""
        return self.docker("info", "--format", "{{.Swarm.NodeAddr}}")

    @property
    def swarm_id(self) -> str:
        """Its name in its swarm."""
        return self.docker("info", "--format", "{{.Swarm.NodeID}}")


@dataclass
class Lab:
    """Engines of our own on one bridge; `close` leaves nothing behind.

    Engines that run already in the folder, left there by an earlier run, are used again.
    """

    folder: Path
    engines: dict[int, Engine] = field(default_factory=dict)

    def open(self) -> None:
        """Make the bridge to which the engines are plugged."""
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise LabFailed(f"not installed: {', '.join(missing)} (Debian: docker.io, iptables)")
        if os.geteuid() != 0:
            raise LabFailed("engines of our own need root; name others in DOCKER_HOSTS")
        self.folder.mkdir(parents=True, exist_ok=True)
        if Path(f"/sys/class/net/{BRIDGE}").exists():
            return
        call("ip", "link", "add", BRIDGE, "type", "bridge")
        call("ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
        call("ip", "link", "set", BRIDGE, "up")
        call("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for rule in _rules():
            call("iptables", *rule("-I"))

    def start(self, number: int) -> Engine:
        """Start an engine, and wait until it answers."""
        namespace, folder = f"nslab{number}", self.folder / f"engine{number}"
        folder.mkdir(exist_ok=True)
        engine = self.engines[number] = Engine(number, f"unix://{folder}/docker.sock")
        if engine.answers():
            return engine
        if not Path(f"/run/netns/{namespace}").exists():
            _plug(namespace, number)
        command = ["nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount", "--uts"]
        command += ["sh", "-euc", _START, "sh", f"machine{number}", str(folder)]
        with (folder / "log").open("ab") as log:
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(engine.answers, within_s=START_S, what=f"engine {number}; see {folder}/log")
        return engine

    def kill(self, number: int) -> None:
        """End an engine and everything on it at once, as a power cut does."""
        pids = self._pids(number)
        for pid in (self._pid(number), *pids):
            _signal(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(_is_alive, pids)), within_s=STOP_S, what="its end")
        (self.folder / f"engine{number}" / "pid").unlink()

    def close(self) -> None:
        """Stop all engines; remove networks and data."""
        for number in self.engines:
            self._stop(number)
            _try("ip", "netns", "delete", f"nslab{number}")
        _try("ip", "link", "delete", BRIDGE)
        for rule in _rules():
            _try("iptables", *rule("-D"))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self, number: int) -> None:
        if not (self.folder / f"engine{number}" / "pid").exists():
            return
        engine, pid = self.engines[number], self._pid(number)
        with contextlib.suppress(LabFailed):  # it may be in no swarm
            engine.docker("swarm", "leave", "--force")
        pids = self._pids(number)
        _signal(pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):  # the rest is killed below
            wait_until(lambda: not _is_alive(pid), within_s=STOP_S)
        for left in (pid, *pids):
            _signal(left, signal.SIGKILL)

    def _pid(self, number: int) -> int:
        return int((self.folder / f"engine{number}" / "pid").read_text())

    def _pids(self, number: int) -> set[int]:
        """All processes of an engine: its own, and those of its containers."""
        engine, found = self.engines[number], set[int]()
        with contextlib.suppress(LabFailed):
            for name in engine.docker("ps", "--quiet").split():
                rows = engine.docker("top", name, "-o", "pid").splitlines()[1:]
                found |= {int(row) for row in rows}
        listed = call("ip", "netns", "pids", f"nslab{number}").split()
        root = str(self.folder / f"engine{number}" / "exec")
        return found | {int(pid) for pid in listed} | set(_with_argument(root))


def _plug(namespace: str, number: int) -> None:
    """A network of its own, with one end on the bridge."""
    inside = ("nsenter", f"--net=/run/netns/{namespace}", "ip")
    call("ip", "netns", "add", namespace)
    pair = (f"nslab-v{number}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
    call("ip", "link", "add", *pair)
    call("ip", "link", "set", f"nslab-v{number}", "master", BRIDGE, "up")
    call(*inside, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
    call(*inside, "link", "set", "eth0", "up")
    call(*inside, "link", "set", "lo", "up")
    call(*inside, "route", "add", "default", "via", HOST_ADDRESS)


def _rules() -> list[_Rule]:
    return [
        lambda verb: (verb, "FORWARD", "-i", BRIDGE, "-j", "ACCEPT"),
        lambda verb: (verb, "FORWARD", "-o", BRIDGE, "-j", "ACCEPT"),
        lambda verb: (
            "-t", "nat", verb, "POSTROUTING", "-s", f"{NETWORK}.0/24", "!", "-o", BRIDGE,
            "-j", "MASQUERADE",
        ),
    ]  # fmt: skip


def _with_argument(text: str) -> Iterator[int]:
    """Processes in whose command line a text occurs: shims, which leave their engine's session."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes():
                yield int(path.parent.name)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def join(manager: Engine, newcomer: Engine) -> None:
    """Have an engine join the manager's swarm as a worker."""
    token = manager.docker("swarm", "join-token", "--quiet", "worker")
    own = f"{NETWORK}.{newcomer.number}"
    place = f"{manager.address}:2377"
    try:
        newcomer.docker("swarm", "join", "--advertise-addr", own, "--token", token, place)
    except LabFailed as error:
        if "will continue in the background" not in str(error):
            raise
    wait_until(lambda: is_in_swarm(newcomer), within_s=START_S, what="that it has joined")


def leave(engine: Engine) -> None:
    """Have an engine forget its swarm, if it has one: it may be waiting for one that is gone."""
    if engine.docker("info", "--format", "{{.Swarm.LocalNodeState}}") != "inactive":
        engine.docker("swarm", "leave", "--force")


def is_in_swarm(engine: Engine) -> bool:
    """Whether the engine is part of a Docker Swarm."""
    return engine.docker("info", "--format", "{{.Swarm.LocalNodeState}}") == "active"


def given(hosts: Sequence[str]) -> dict[int, Engine]:
    """Engines of somebody else's, by their addresses; the first one manages their swarm."""
    return {number: Engine(number, host) for number, host in enumerate(hosts, start=1)}
