"""Ports: what was asked for or nothing, a default or the next free one."""

import socket
import sys

import pytest

from neuroswarm.cli.ports import (
    PortClaims,
    PortPlan,
    PortProbe,
    PortWishes,
    Transport,
    plan_ports,
)
from neuroswarm.errors import ConfigError


class Machine:
    """A machine on which some ports are taken."""

    def __init__(self, tcp: set[int] | None = None, udp: set[int] | None = None) -> None:
        self.taken = {"tcp": tcp or set(), "udp": udp or set()}

    def is_free(self, transport: Transport, port: int) -> bool:
        return port not in self.taken[transport]


def test_defaults_on_a_free_machine():
    assert plan_ports(PortWishes(), Machine().is_free) == PortPlan(7101, 8101, 9999)


def test_taken_default_moves_and_says_so():
    plan = plan_ports(PortWishes(), Machine(tcp={7101}, udp={9999, 10000}).is_free)
    assert (plan.http, plan.grpc, plan.heartbeat) == (7102, 8102, 10001)
    assert plan.remarks == (
        "HTTP port 7101 is in use, taking 7102",
        "heartbeat port 9999 is in use, taking 10001",
    )


def test_http_and_grpc_defaults_move_together():
    plan = plan_ports(PortWishes(), Machine(tcp={8101, 7102}).is_free)
    assert (plan.http, plan.grpc) == (7103, 8103)


def test_grpc_derived_from_an_asked_http_port_moves_alone():
    plan = plan_ports(PortWishes(http=7200), Machine(tcp={8200}).is_free)
    assert (plan.http, plan.grpc) == (7200, 8201)
    assert plan.remarks == ("gRPC port 8200 is in use, taking 8201",)


def test_http_default_avoids_the_asked_grpc_port():
    plan = plan_ports(PortWishes(grpc=7101), Machine().is_free)
    assert (plan.http, plan.grpc) == (7102, 7101)


def test_any_free_port_is_left_to_the_system():
    plan = plan_ports(PortWishes(http=0, heartbeat=0), Machine().is_free)
    assert plan == PortPlan(0, 0, 0)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (PortWishes(http=7200), "port 7200 for HTTP is in use .*--port"),
        (PortWishes(grpc=7300), "port 7300 for gRPC is in use .*--grpc-port"),
        (PortWishes(heartbeat=9100), "port 9100 for heartbeats is in use .*--heartbeat-port"),
    ],
    ids=["http", "grpc", "heartbeat"],
)
def test_taken_port_that_was_asked_for_is_an_error(wishes: PortWishes, message: str):
    with pytest.raises(ConfigError, match=message):
        plan_ports(wishes, Machine(tcp={7200, 7300}, udp={9100}).is_free)


def test_one_port_cannot_serve_http_and_grpc():
    with pytest.raises(ConfigError, match="7200 is asked for twice"):
        plan_ports(PortWishes(http=7200, grpc=7200), Machine().is_free)


def test_search_for_a_default_ends():
    with pytest.raises(ConfigError, match="no free HTTP port from 7101 to 7300"):
        plan_ports(PortWishes(), lambda transport, port: transport == "udp")


def test_high_http_port_leaves_no_room_for_grpc():
    with pytest.raises(ConfigError, match="leaves no gRPC port 66000"):
        plan_ports(PortWishes(http=65000), Machine().is_free)


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_probe_sees_what_listens(transport: Transport):
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    claims = PortClaims()
    probe = PortProbe("127.0.0.1", claims)
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        if transport == "tcp":
            listener.listen()
        port = listener.getsockname()[1]
        assert not probe.is_free(transport, port)
    assert probe.is_free(transport, port)
    claims.release()


@pytest.mark.skipif(sys.platform != "linux", reason="claims are names of Linux' own")
def test_nodes_that_start_at_once_choose_different_ports():
    """Another process has chosen these defaults and not bound them yet."""
    earlier, later = PortClaims(), PortClaims()
    first = plan_ports(PortWishes(), PortProbe("127.0.0.1", earlier).is_free)
    second = plan_ports(PortWishes(), PortProbe("127.0.0.1", later).is_free)
    again = plan_ports(PortWishes(), PortProbe("127.0.0.1", later).is_free)
    earlier.release()
    later.release()
    ports = (first.http, first.grpc, first.heartbeat, second.http, second.grpc, second.heartbeat)
    assert len(set(ports)) == 6
    assert again == second


def test_probe_names_an_address_that_is_not_ours():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:7101"):
        PortProbe("192.0.2.1").is_free("tcp", 7101)
