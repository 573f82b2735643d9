"""Where a node that was given nobody looks for others."""

from __future__ import annotations

import pytest

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.discovery.sources import describe_sources

SEEDS = {"seeds": ["10.0.0.6:8101"]}


@pytest.mark.parametrize(
    ("network", "dht", "said"),
    [
        ({}, {}, "looking on the local network"),
        ({"host": "10.0.0.5"}, {}, "looking on the local network"),
        ({"host": "127.0.0.1"}, {}, "starting alone"),
        ({"host": "::1"}, {}, "starting alone"),
        ({"lan": False}, {}, "starting alone"),
        ({"lan": False}, SEEDS, "looking at the seeds of the DHT"),
        ({"lan": False}, {**SEEDS, "enabled": False}, "starting alone"),
        ({}, SEEDS, "looking on the local network and at the seeds of the DHT"),
    ],
)
def test_it_says_where_it_will_look(network: dict, dht: dict, said: str):
    settings = SwarmNodeConfig(network=network, dht=dht)
    assert describe_sources(settings, has_own_network=False, is_known=False) == said


def test_a_container_with_a_network_of_its_own_has_no_local_network():
    settings = SwarmNodeConfig()
    assert describe_sources(settings, has_own_network=True, is_known=False) == "starting alone"
    said = describe_sources(settings, has_own_network=True, is_known=True)
    assert said == "looking among the peers of former runs"
