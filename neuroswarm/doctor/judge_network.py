"""Whether this machine has a network that leads to peers: facts in, findings out.

Refuses to look at the machine, and to know who the peers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroswarm.doctor.finding import Finding, fail, ok, skip, warn
from neuroswarm.hardware.container import ContainerFacts
from neuroswarm.hardware.interfaces import Interface

NETWORK, CONTAINER, PORTS, TOKEN = "network", "container", "ports", "token"

MIN_MTU = 1236
"""A full datagram (1188 bytes sealed) with the headers of UDP and IPv6."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The ports that a node would take now."""

    ports: tuple[tuple[str, int], ...] = ()
    """What each is for, and its number; 0 for any free one."""
    remarks: tuple[str, ...] = ()
    """Defaults that are in use, and what is taken instead."""
    failure: str = ""
    """Why a node cannot have the ports that were asked for."""
    fix: str = ""
    """What to do then."""


def judge_network(
    interfaces: Sequence[Interface],
    route: str | None,
    announce: str | None = None,
    deafness: str = "",
) -> Finding:
    """Whether anything but loopback is up, and which address the others are told.

    Args:
        interfaces: Those that are up and have addresses.
        route: This machine's address on the route to other networks; None without a route.
        announce: Host that peers are told instead; None if none was given.
        deafness: That the node does not listen to an address that it announces, if it does not.
    """
    outer = [interface for interface in interfaces if not interface.is_inner]
    if not outer:
        return fail(
            NETWORK,
            "no network: nothing but loopback is up",
            "plug the cable in or join the WiFi (see `ip address`); without it a node trains alone",
        )
    chosen = next((i for i in interfaces if route in i.addresses), None)
    said = _describe(chosen or outer[0], route)
    if 0 < (chosen or outer[0]).mtu < MIN_MTU:
        return warn(
            NETWORK,
            f"{said}: heartbeats of {MIN_MTU} bytes do not fit",
            "raise the MTU to 1280 at least (in an overlay network: "
            "com.docker.network.driver.mtu=1330)",
        )
    if deafness:
        return warn(NETWORK, f"{said}; {deafness}", "--host :: listens on both")
    if chosen is not None and chosen.is_inner and announce is None:
        return warn(
            NETWORK,
            f"{said}: by its name it leads to containers only",
            f"give the address that others reach: --announce {outer[0].addresses[0]}",
        )
    if route is None and announce is None:
        return warn(
            NETWORK,
            f"{said}; no route to other networks",
            "enough for peers on the same network; for others set a default gateway",
        )
    told = f"; peers are told {announce}" if announce else ""
    return ok(NETWORK, said + told)


def judge_container(
    facts: ContainerFacts,
    interfaces: Sequence[Interface],
    route: str | None,
    announce: str | None = None,
) -> Finding:
    """Whether a container's network hides the node from machines outside.

    Args:
        facts: Whether this is one, and with whose network.
        interfaces: Those that are up and have addresses.
        route: This machine's address on the route to other networks; None without a route.
        announce: Host that peers are told; None if none was given.
    """
    if not facts.is_container:
        return ok(CONTAINER, "none")
    if not interfaces:
        return ok(CONTAINER, "in a container without a network")
    if not facts.has_own_network:
        return ok(CONTAINER, "in a container, with the network of its host")
    if announce is not None:
        return ok(CONTAINER, f"in a container with a network of its own; peers are told {announce}")
    return warn(
        CONTAINER,
        f"in a container with a network of its own: others are told "
        f"{route or 'its inner address'}, which only containers of that network reach",
        "--network host; or publish the three ports with the same numbers and give --announce "
        "with the host's address; nothing to do if all peers are in one overlay network",
    )


def judge_token(fingerprint: str | None) -> Finding:
    """Whether a node here would be one of a closed swarm.

    Args:
        fingerprint: Of its token; None without one.
    """
    if fingerprint is None:
        return warn(
            TOKEN,
            "none: the swarm is open to everybody who can reach its ports",
            "neuroswarm token new --out token, and --token-file token at every node",
        )
    return ok(TOKEN, f"fingerprint {fingerprint}; it must be the same at every node")


def judge_ports(facts: PortFacts) -> Finding:
    """Whether a node can have its ports."""
    if facts.failure:
        return fail(PORTS, facts.failure, facts.fix)
    if not facts.ports:
        return skip(PORTS, "not asked")
    said = ", ".join(f"{what} {number or 'any'}" for what, number in facts.ports)
    remarks = f" ({'; '.join(facts.remarks)})" if facts.remarks else ""
    return ok(PORTS, f"free: {said}{remarks}")


def _describe(interface: Interface, route: str | None) -> str:
    address = route if route in interface.addresses else interface.addresses[0]
    kind = ", wireless" if interface.is_wireless else ""
    return f"{address} on {interface.name} (MTU {interface.mtu or 'unknown'}{kind})"
