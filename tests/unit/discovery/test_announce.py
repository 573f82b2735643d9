from __future__ import annotations

import pytest

from neuroswarm.discovery.announce import LOOPBACK, choose_announced_host, route_to
from neuroswarm.errors import ConfigError


async def test_what_was_asked_for_wins():
    host = await choose_announced_host("10.1.2.3", announce="me.example", hints=["127.0.0.1"])
    assert host == "me.example"


async def test_an_address_listened_on_is_announced():
    assert await choose_announced_host("10.1.2.3", hints=["127.0.0.1"]) == "10.1.2.3"


@pytest.mark.parametrize("host", ["fe80::1%eth0", "my node", "h\u00f6st.example"])
async def test_a_host_that_peers_would_refuse_is_an_error(host):
    with pytest.raises(ConfigError, match="cannot announce host"):
        await choose_announced_host("0.0.0.0", announce=host)
    with pytest.raises(ConfigError, match="cannot announce host"):
        await choose_announced_host(host)


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", ""])
@pytest.mark.parametrize("hints", [[], ["127.0.0.1"], ["localhost", "127.0.0.2"]])
async def test_a_node_with_neighbours_on_its_own_machine_only_announces_loopback(listen, hints):
    assert await choose_announced_host(listen, hints=hints) == LOOPBACK


async def test_the_route_to_another_machine_is_announced():
    expected = route_to("192.0.2.1") or LOOPBACK  # loopback: this machine has no route at all
    assert await choose_announced_host("0.0.0.0", hints=["127.0.0.1", "192.0.2.1"]) == expected


def test_the_route_to_loopback_is_loopback():
    assert route_to("127.0.0.1") == "127.0.0.1"
