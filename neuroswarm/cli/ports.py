"""Which ports a node takes: what was asked for, or the next free one after a default.

The decision is pure; `PortProbe` asks the machine.
"""

from __future__ import annotations

import errno
import itertools
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from neuroswarm.connecting import explain_failure
from neuroswarm.errors import ConfigError
from neuroswarm.listening import bind
from neuroswarm.values import Endpoint

DEFAULT_TRACKER_PORT = 7100
DEFAULT_HTTP_PORT = 7101
DEFAULT_HEARTBEAT_PORT = 9999
GRPC_PORT_OFFSET = 1000
MAX_PORT = 65535
MAX_TRIES = 200
"""Ports tried after a default one that is taken."""

_CHOOSE = "stop what uses them, or choose a port yourself (--port, --grpc-port, --heartbeat-port)"

Transport = Literal["tcp", "udp"]
IsFree = Callable[[Transport, int], bool]


@dataclass(frozen=True)
class PortWishes:
    """Ports that were asked for; None where the default is welcome, 0 for any free one."""

    http: int | None = None
    grpc: int | None = None
    heartbeat: int | None = None


@dataclass(frozen=True)
class PortPlan:
    """Ports to bind (0: any free one), and what to tell the user of defaults not kept."""

    http: int
    grpc: int
    heartbeat: int
    remarks: tuple[str, ...] = ()


class NoPort(ConfigError):
    """A port or the host cannot be had.

    Args:
        said: What is wrong.
        fix: What to do.
    """

    def __init__(self, said: str, fix: str) -> None:
        super().__init__(f"{said} ({fix})")
        self.said = said
        self.fix = fix


def plan_ports(wishes: PortWishes, is_free: IsFree) -> PortPlan:
    """Choose the ports of a node.

    HTTP and gRPC move together, so that gRPC stays 1000 above HTTP where both are defaults.

    Raises:
        NoPort: a port that was asked for is taken, or no default is free.
    """
    require_free("HTTP", "--port", "tcp", wishes.http, is_free)
    require_free("gRPC", "--grpc-port", "tcp", wishes.grpc, is_free)
    require_free("heartbeats", "--heartbeat-port", "udp", wishes.heartbeat, is_free)
    require_different(wishes)
    http, grpc = _plan_tcp(wishes, is_free)
    heartbeat = wishes.heartbeat
    if heartbeat is None:
        heartbeat = next_free("heartbeat", "udp", DEFAULT_HEARTBEAT_PORT, is_free)
    remarks = [
        moved("HTTP", DEFAULT_HTTP_PORT, http, asked=wishes.http is not None),
        moved("gRPC", http + GRPC_PORT_OFFSET, grpc, asked=wishes.grpc is not None or not http),
        moved("heartbeat", DEFAULT_HEARTBEAT_PORT, heartbeat, asked=wishes.heartbeat is not None),
    ]
    return PortPlan(http, grpc, heartbeat, tuple(remark for remark in remarks if remark))


def require_different(wishes: PortWishes) -> None:
    """NoPort if the same port was asked for twice, which no machine can have."""
    if wishes.http and wishes.http == wishes.grpc:
        raise NoPort(
            f"port {wishes.http} is asked for twice: for HTTP and for gRPC",
            "give --port and --grpc-port different ones",
        )


def require_free(
    what: str, flag: str, transport: Transport, port: int | None, is_free: IsFree
) -> None:
    """NoPort if this port was asked for and is taken."""
    if port and not is_free(transport, port):
        raise NoPort(
            f"port {port} for {what} is in use", f"stop what uses it, or choose another with {flag}"
        )


def next_free(what: str, transport: Transport, first: int, is_free: IsFree) -> int:
    """The first free port from `first` on; NoPort if none of the next ones is."""
    for port in _upwards(first):
        if is_free(transport, port):
            return port
    raise NoPort(f"no free {what} port from {first} to {first + MAX_TRIES - 1}", _CHOOSE)


def moved(what: str, default: int, port: int, *, asked: bool) -> str:
    """What to tell of a default port that was taken; empty if it was not."""
    if asked or port == default:
        return ""
    return f"{what} port {default} is in use, taking {port}"


def _plan_tcp(wishes: PortWishes, is_free: IsFree) -> tuple[int, int]:
    if wishes.http is not None:
        http = wishes.http
        if wishes.grpc is not None:
            return http, wishes.grpc
        return http, _derived_grpc(http, is_free)
    for http in _upwards(DEFAULT_HTTP_PORT):
        grpc = http + GRPC_PORT_OFFSET if wishes.grpc is None else wishes.grpc
        if http != grpc and is_free("tcp", http) and (wishes.grpc == grpc or is_free("tcp", grpc)):
            return http, grpc
    raise NoPort(
        f"no free HTTP port from {DEFAULT_HTTP_PORT} to {DEFAULT_HTTP_PORT + MAX_TRIES - 1}",
        _CHOOSE,
    )


def _derived_grpc(http: int, is_free: IsFree) -> int:
    if not http:
        return 0
    if http + GRPC_PORT_OFFSET > MAX_PORT:
        raise NoPort(
            f"port {http} leaves no gRPC port {http + GRPC_PORT_OFFSET}",
            f"at most {MAX_PORT - GRPC_PORT_OFFSET}, or set --grpc-port",
        )
    return next_free("gRPC", "tcp", http + GRPC_PORT_OFFSET, is_free)


def _upwards(first: int) -> Iterator[int]:
    return itertools.takewhile(lambda p: p <= MAX_PORT, range(first, first + MAX_TRIES))


def _advise(error: OSError, host: str) -> str:
    """What to do about a socket that cannot be bound for another reason than its port's use."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "take a port above 1023, or start with the right to lower ones"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host} is none of this machine's addresses: give one of them with --host (see "
            "`ip address`), or leave it out for all of IPv4; what the others are to be told is "
            "--announce"
        )
    return "give another address with --host"


class PortClaims:
    """Ports that this process is going to bind, so that no other node of this machine takes them.

    Seconds pass between the choice of a port and its binding, and people start several nodes at
    once. A claim is a name in Linux' abstract socket namespace, which ends with the process;
    elsewhere every claim succeeds.
    """

    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}

    def claim(self, transport: Transport, host: str, port: int) -> bool:
        """Whether this process has the port's name now, or had it already."""
        place = f"{transport} {host} {port}"
        if sys.platform != "linux" or place in self._held:
            return True
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0neuroswarm {place}")
        except OSError as error:
            name.close()
            if error.errno == errno.EADDRINUSE:
                return False
            why = explain_failure(error)
            raise NoPort(f"cannot claim port {port}: {why}", _CHOOSE) from error
        self._held[place] = name
        return True

    def release(self) -> None:
        """Give all names up; for tests: a process that ends gives them up by itself."""
        while self._held:
            self._held.popitem()[1].close()


CLAIMS = PortClaims()
"""The claims of this process."""


class PortProbe:
    """Finds out whether a port is free on one host by binding it for a moment; claims it then."""

    def __init__(self, host: str, claims: PortClaims = CLAIMS) -> None:
        self._host = host
        self._claims = claims

    def is_free(self, transport: Transport, port: int) -> bool:
        """Whether the port can be bound now, and no other node is about to.

        Raises:
            NoPort: the host is not an address of this machine, or the port is forbidden.
        """
        kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
        try:
            bind(kind, Endpoint(self._host, port)).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            said = f"cannot listen on {Endpoint(self._host, port)}: {explain_failure(error)}"
            raise NoPort(said, _advise(error, self._host)) from error
        return self._claims.claim(transport, self._host, port)
