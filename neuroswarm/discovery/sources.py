"""Where a node that was given nobody looks for others, by its settings.

Refuses to look.
"""

from __future__ import annotations

from neuroswarm.config import SwarmNodeConfig
from neuroswarm.config.sections import NetworkConfig
from neuroswarm.membership.addresses import is_loopback


def looks_on_lan(network: NetworkConfig, *, has_own_network: bool) -> bool:
    """Whether it looks on the local network: it is wanted, and others could reach it there.

    Args:
        network: The settings.
        has_own_network: Whether this is a container with a network of its own.
    """
    return network.lan and not is_loopback(network.host) and not has_own_network


def describe_sources(settings: SwarmNodeConfig, *, has_own_network: bool, is_known: bool) -> str:
    """What it does about finding others, for people.

    Args:
        settings: All of the node's.
        has_own_network: Whether this is a container with a network of its own.
        is_known: Whether peers are remembered from former runs.
    """
    places = []
    if looks_on_lan(settings.network, has_own_network=has_own_network):
        places.append("on the local network")
    if settings.dht.enabled and settings.dht.seeds:
        places.append("at the seeds of the DHT")
    if is_known:
        places.append("among the peers of former runs")
    return f"looking {' and '.join(places)}" if places else "starting alone"
