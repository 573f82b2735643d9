"""Finds out how the ways are to all that a node would be given to find others by.

Asks the trackers and peers that are named, then some nodes that those know. Refuses to judge.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import aiohttp

from neuroswarm.clock import Clock
from neuroswarm.discovery.announce import route_to
from neuroswarm.discovery.hint import Hint, Way
from neuroswarm.discovery.host_names import ConnectionResolver, Lookup
from neuroswarm.doctor.calling_back import CallBack
from neuroswarm.doctor.datagram_asker import ask_by_datagram, open_udp
from neuroswarm.doctor.way import TIMEOUT_S, Target, WayFacts, ask_over_tcp
from neuroswarm.errors import PeerUnreachable
from neuroswarm.identity.sealing import Sealer
from neuroswarm.values import Endpoint
from neuroswarm.wire import limits
from neuroswarm.wire.hosts import is_address

MAX_TARGETS = 16
"""Trackers and peers that are asked; further ones are left out."""

MAX_OF_A_NAME = 4
"""Addresses asked of a `dns://` name."""

MAX_FURTHER = 3
"""Nodes asked besides, which the given ones know."""


@dataclass(frozen=True, slots=True)
class NameFacts:
    """A host name, and what it stands for."""

    host: str
    addresses: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Explored:
    """All that was found."""

    names: tuple[NameFacts, ...] = ()
    ways: tuple[WayFacts, ...] = ()
    calls_back: tuple[CallBack, ...] = ()
    """What nodes found that were asked to call this machine back."""


async def explore(hints: Sequence[Hint], sealer: Sealer, clock: Clock, lookup: Lookup) -> Explored:
    """Look names up, then ask over TCP all at once, then by datagram one after the other.

    Takes under a second where all answers, up to a minute where packets are lost.

    Args:
        hints: What a node would be given.
        sealer: Holds the swarm's datagram key.
        clock: Tells the time.
        lookup: Finds the addresses of names.

    Cancellation: nothing is left behind but name look-ups in their threads.
    """
    hosts = dict.fromkeys(hint.endpoint.host for hint in hints[:MAX_TARGETS])
    names = await asyncio.gather(*(_look_up(host, lookup) for host in hosts))
    known = {name.host: name.addresses for name in names}
    targets = [target for hint in hints for target in _targets(hint, known)][:MAX_TARGETS]
    connector = aiohttp.TCPConnector(resolver=ConnectionResolver(lookup))
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        ways = await asyncio.gather(
            *(ask_over_tcp(target, session, sealer, clock) for target in targets)
        )
        further = _further(ways)
        ways += await asyncio.gather(
            *(ask_over_tcp(target, session, sealer, clock) for target in further)
        )
    with open_udp() as udp:
        greeted = tuple([await _greet(way, sealer, udp) for way in ways])
    return Explored(tuple(name for name in names if not is_address(name.host)), greeted)


async def _look_up(host: str, lookup: Lookup) -> NameFacts:
    try:
        return NameFacts(host, await lookup(host))
    except PeerUnreachable as error:
        return NameFacts(host, failure=str(error))


def _targets(hint: Hint, known: dict[str, tuple[str, ...]]) -> list[Target]:
    """Whom a hint leads to; nobody if its name is unknown."""
    addresses = known.get(hint.endpoint.host, ())
    if hint.way is Way.NAME:
        return [
            Target(
                f"{hint} ({address})",
                Endpoint(address, hint.endpoint.port),
                address,
                greeted_port=hint.greeted_port,
            )
            for address in addresses[:MAX_OF_A_NAME]
        ]
    label = str(hint).removesuffix("/v1/tracker")
    return [
        Target(label, hint.endpoint, address, hint.scheme, hint.greeted_port)
        for address in addresses[:1]
    ]


def _further(ways: Iterable[WayFacts]) -> list[Target]:
    """Some nodes that the asked ones know, each once, none of the asked ones."""
    asked = {Endpoint(way.target.address, way.target.endpoint.port) for way in ways}
    found: dict[Endpoint, Target] = {}
    for way in ways:
        for peer in way.reply.peers if way.reply is not None else ():
            endpoint = Endpoint(peer.host, peer.http_port)
            if is_address(peer.host) and peer.http_port and endpoint not in asked:
                label = f"node {endpoint}"
                found[endpoint] = Target(
                    label, endpoint, peer.host, greeted_port=peer.heartbeat_port, is_given=False
                )
    return list(found.values())[:MAX_FURTHER]


async def _greet(facts: WayFacts, sealer: Sealer, udp: socket.socket) -> WayFacts:
    """Ask by a small datagram, and by one of the largest size if that was answered."""
    address = facts.target.address
    facts = replace(facts, own_address=route_to(address))
    port = facts.target.greeted_port
    if facts.reply is not None:
        port = facts.reply.heartbeat_port
    if not port or facts.is_refused:
        return facts
    to = Endpoint(address, port)
    small = await ask_by_datagram(udp, to, sealer, is_large=False)
    facts = replace(facts, greeted_port=port, echoed=small)
    if small is None or await ask_by_datagram(udp, to, sealer, is_large=True) is not None:
        return facts
    failure = f"datagrams of {limits.MAX_DATAGRAM_BYTES} bytes: no answer"
    return replace(facts, large_failures=(*facts.large_failures, failure))
