from __future__ import annotations

import re

import pytest

from neuroswarm.discovery.announce import (
    check_announced,
    choose_hosts,
    find_hosts,
    find_lan_hosts,
    make_finder,
    route_to,
    warn_of_deafness,
)
from neuroswarm.discovery.host_names import NameLookup
from neuroswarm.errors import ConfigError, PeerUnreachable
from neuroswarm.hardware.interfaces import Interface, read_interfaces

LAN = "192.168.1.7"
VPN = "10.8.0.3"
V6 = "2001:db8::7"
DOCKER = Interface("docker0", ("172.17.0.1",), 1500, is_inner=True)
HOME = (DOCKER, Interface("wg0", (VPN,), 1420), Interface("wlan0", (LAN, V6), 1500))


class Names:
    """A name service that knows a few names."""

    def __init__(self, **names: str) -> None:
        self.names = names

    async def __call__(self, host: str) -> tuple[str, ...]:
        if host[0].isdigit():
            return (host,)
        if host not in self.names:
            raise PeerUnreachable(f"unknown host {host}")
        return (self.names[host],)


async def test_what_was_asked_for_wins():
    find = make_finder("10.1.2.3", ["me.example", V6, "me.example"], ["127.0.0.1"], lookup=Names())
    assert await find() == ("me.example", V6)


@pytest.mark.parametrize("listen", ["10.1.2.3", "127.0.0.1", "::1"])
async def test_an_address_listened_on_is_announced_even_if_it_is_loopback(listen):
    find = make_finder(listen, (), ["127.0.0.1"], lookup=Names())
    assert await find() == (listen,)


@pytest.mark.parametrize("host", ["fe80::1%eth0", "my node", "h\u00f6st.example", "0.0.0.0", ""])
def test_a_host_that_peers_would_refuse_is_an_error(host):
    with pytest.raises(ConfigError, match="cannot announce host"):
        check_announced([host])
    with pytest.raises(ConfigError, match="cannot announce host"):
        make_finder("0.0.0.0", ["10.0.0.1", host], (), lookup=Names())


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("", "it is empty"),
        ("0.0.0.0", "every address of a machine"),
        ("::", "every address of a machine"),
        ("224.0.0.1", "many machines"),
        ("ff02::1", "many machines"),
        ("255.255.255.255", "many machines"),
        ("fe80::1", "on one interface only"),
        ("fe80::1%eth0", "on one interface only"),
        ("300.300.300.300", "four numbers from 0 to 255"),
        ("10.1", "four numbers from 0 to 255"),
        ("10.0.0.5:7101", r"no port .*: give 10\.0\.0\.5 "),
        ("[2001:db8::1]:7101", "no port .*: give 2001:db8::1 "),
        ("a.example:7101", r"no port .*: give a\.example "),
        ("http://10.0.0.5", r"a URL: give the host alone, like 10\.0\.0\.5 "),
        ("http://[2001:db8::1]:7101/status", "a URL: give the host alone, like 2001:db8::1 "),
        ("10.0.0.0/24", "neither an address nor a name"),
        ("50%", "neither an address nor a name"),
    ],
)
def test_what_is_wrong_with_a_host_is_said(host, why):
    with pytest.raises(ConfigError, match=rf"cannot announce host '{re.escape(host)}' .*{why}"):
        check_announced([host])


@pytest.mark.parametrize(
    "host", ["169.254.1.2", "10.0.0.255", "127.0.0.1", "::1", "fd00::1", "node.3", "a.example"]
)
def test_a_host_that_peers_may_reach_is_announced(host):
    assert check_announced([host]) == (host,)


@pytest.mark.parametrize(
    ("listen", "announced", "said"),
    [
        ("0.0.0.0", [LAN, V6], f"{V6}, which is IPv6, .* on 0.0.0.0, which is IPv4 only"),
        (LAN, [V6], f"{V6}, which is IPv6, .* on {LAN}, which is IPv4 only"),
        (V6, [LAN], f"{LAN}, which is IPv4, .* on {V6}, which is IPv6 only"),
    ],
)
def test_an_address_of_a_kind_that_is_not_listened_to_is_told(listen, announced, said):
    assert re.search(said, warn_of_deafness(listen, announced))


@pytest.mark.parametrize(
    ("listen", "announced"),
    [("::", [LAN, V6]), ("0.0.0.0", [LAN, "a.example"]), ("localhost", [LAN, V6]), (V6, [V6])],
)
def test_an_address_that_may_be_listened_to_is_not(listen, announced):
    assert warn_of_deafness(listen, announced) == ""


def test_a_listened_name_that_peers_would_refuse_is_an_error():
    with pytest.raises(ConfigError, match="cannot announce host"):
        make_finder("my node", (), (), lookup=Names())


@pytest.mark.parametrize(
    "hosts", [[f"10.0.0.{i}" for i in range(5)], [f"{c * 60}.{c * 60}.example" for c in "abc"]]
)
def test_too_many_hosts_are_an_error(hosts):
    with pytest.raises(ConfigError, match=r"cannot announce \d hosts to peers: at most 4"):
        check_announced([*hosts, "d" * 60])


@pytest.mark.parametrize(
    ("routes", "has_v6", "chosen"),
    [
        pytest.param([LAN], False, (LAN,), id="the route to the others"),
        pytest.param([VPN, LAN, None], False, (VPN, LAN), id="the hints' route first"),
        pytest.param(["127.0.0.1", LAN], False, (LAN,), id="never loopback"),
        pytest.param(["172.17.0.1", LAN], False, (LAN,), id="never a bridge to containers"),
        pytest.param(["169.254.3.4", LAN], False, (LAN,), id="never link-local"),
        pytest.param([LAN, V6], False, (LAN,), id="no IPv6 unless it listens to that"),
        pytest.param([LAN, V6, LAN], True, (LAN, V6), id="both, each once"),
        pytest.param(["127.0.0.1", None], False, (VPN, LAN), id="interfaces where no route leads"),
    ],
)
def test_hosts_are_chosen_by_the_routes(routes, has_v6, chosen):
    assert choose_hosts(routes, HOME, has_v6=has_v6) == chosen


def test_a_machine_with_nothing_but_loopback_has_no_host():
    assert choose_hosts(["127.0.0.1", None], [DOCKER], has_v6=True) == ()


def test_no_more_hosts_are_announced_than_peers_take():
    many = [f"10.0.0.{i}" for i in range(9)]
    assert choose_hosts(many, [], has_v6=True) == tuple(many[:4])


@pytest.mark.parametrize("hints", [[], ["127.0.0.1"], ["here", "nowhere"]])
async def test_a_node_that_listens_everywhere_never_announces_loopback(hints):
    hosts = await find_hosts("0.0.0.0", hints, lookup=Names(here="127.0.0.2"))
    assert not any(host.startswith("127.") or ":" in host for host in hosts)
    assert set(hosts) <= {host for i in read_interfaces() for host in i.addresses}
    if (route := route_to("192.0.2.1")) is not None:
        assert route in hosts


async def test_names_of_hints_are_looked_up():
    assert await find_hosts("::", ["localhost"], lookup=NameLookup()) == await find_hosts(
        "::", lookup=Names()
    )


def test_the_route_to_loopback_is_loopback():
    assert route_to("127.0.0.1") == "127.0.0.1"


async def test_on_its_local_networks_a_node_is_at_all_its_addresses():
    assert await find_lan_hosts("10.1.2.3") == ("10.1.2.3",)
    outer = {h for i in read_interfaces() if not i.is_inner for h in i.addresses if ":" not in h}
    assert set(await find_lan_hosts("0.0.0.0")) <= outer
