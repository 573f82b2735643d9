"""Whether trackers and peers can be reached, and what lies between: facts in, findings out.

Refuses to ask anybody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from neuroswarm.doctor.calling_back import CallBack
from neuroswarm.doctor.exploring import Explored, NameFacts
from neuroswarm.doctor.finding import Finding, fail, ok, skip, warn
from neuroswarm.doctor.local import TimeTold
from neuroswarm.doctor.way import Target, WayFacts
from neuroswarm.hardware.interfaces import Interface
from neuroswarm.membership.swarm_time import median_offset
from neuroswarm.values import Endpoint

DNS, PEERS, MTU, NAT, REACHABLE = "dns", "peers", "mtu", "nat", "reachable"

_FORWARD = (
    "let the router forward the HTTP and gRPC ports (TCP) and the heartbeat port (UDP) to this "
    "machine, and give --announce with its outer address"
)


def judge_ways(
    explored: Explored, interfaces: Sequence[Interface], announce: str | None = None
) -> Iterator[Finding]:
    """Every finding about names, trackers, peers and what lies between.

    Args:
        explored: What was found.
        interfaces: This machine's, for its own addresses.
        announce: Host that peers are told; None if none was given.
    """
    if not explored.names and not explored.ways:
        yield skip(
            PEERS, "nobody to ask: give --tracker or --peer as to the node, and it is looked at"
        )
        return
    yield judge_names(explored.names)
    for way in explored.ways:
        yield judge_way(way)
    answered = [way for way in explored.ways if way.is_answered]
    yield judge_mtu(answered)
    yield judge_nat(answered, interfaces, announce)
    yield judge_calls_back(explored.calls_back)


def tell_time(ways: Iterable[WayFacts]) -> TimeTold:
    """What the clocks of those that answered say, against this machine's."""
    told = {way.target.label: way.offset_s for way in ways if way.offset_s is not None}
    if not told:
        return TimeTold()
    label = next(iter(told))
    witness = f"the clock of {label}" if len(told) == 1 else f"the clocks of {len(told)} others"
    return TimeTold(median_offset(told.values()), witness)


def judge_names(names: Sequence[NameFacts]) -> Finding:
    """Whether the names of trackers and peers are known."""
    if not names:
        return skip(DNS, "not needed: no tracker or peer is given by name")
    unknown = [name for name in names if name.failure]
    if unknown:
        return fail(
            DNS,
            "; ".join(f"{name.host}: {name.failure}" for name in unknown),
            "check the name and the nameserver in /etc/resolv.conf, or give the address",
        )
    return ok(DNS, "; ".join(f"{name.host} is {', '.join(name.addresses)}" for name in names))


def judge_way(facts: WayFacts) -> Finding:
    """Whether a node here could work with this tracker or peer."""
    target = facts.target
    if facts.is_refused:
        return fail(
            PEERS,
            f"{target.label}: {facts.http_failure}",
            "give the token of its swarm (--token-file)",
        )
    if not facts.is_answered:
        return _judge_silence(facts)
    if facts.reply is None and target.greeted_port == target.endpoint.port:
        return ok(PEERS, f"{target.label} answers datagrams; its HTTP port is not known")
    problems = list(_list_closed(facts))
    if problems:
        said = f"{target.label} answers, but {'; '.join(said for said, _ in problems)}"
        return fail(
            PEERS,
            said,
            f"let {' and '.join(port for _, port in problems)} of {target.endpoint.host} through "
            "the firewalls between",
        )
    return ok(PEERS, f"{target.label} {_describe(facts)}")


def judge_mtu(ways: Sequence[WayFacts]) -> Finding:
    """Whether large packets pass where small ones do.

    Args:
        ways: To those that answered.
    """
    if not ways:
        return skip(MTU, "nobody answered")
    lost = [f"{way.target.label}: {text}" for way in ways for text in way.large_failures]
    if lost:
        return fail(
            MTU,
            f"black hole suspected: small packets pass, large ones do not ({'; '.join(lost)})",
            "lower the MTU of this machine's interface (ip link set dev NAME mtu 1280), or in an "
            "overlay network com.docker.network.driver.mtu",
        )
    return ok(MTU, "large packets pass, both ways")


def judge_nat(
    ways: Sequence[WayFacts], interfaces: Sequence[Interface], announce: str | None
) -> Finding:
    """What others see of this machine: its own address, or a router's.

    Args:
        ways: To those that answered.
        interfaces: This machine's.
        announce: Host that peers are told; None if none was given.
    """
    seen = list(_observed(ways))
    if not seen:
        return skip(NAT, "nobody said from where it sees this machine")
    own = {address for interface in interfaces for address in interface.addresses}
    translated = [(way, host, port) for way, host, port in seen if not _is_own(host, way, own)]
    if not translated:
        return _judge_source(seen, announce)
    host = translated[0][1]
    places = [Endpoint(seen_host, port) for _, seen_host, port in translated if port]
    places = [place for place in places if (":" in place.host) == (":" in host)]
    if len(set(places)) > 1:
        kind = "another port for every peer (symmetric): only relaying through others works"
    elif len(places) > 1:
        kind = "the same port for every peer"
    else:
        kind = "of what kind, two peers that answer by datagram would tell"
    said = f"behind a router's address translation: others see {host}; {kind}"
    if announce is not None:
        return ok(NAT, f"{said}; peers are told {announce}")
    return warn(NAT, said, f"{_FORWARD}; else the node needs one peer that can be reached")


def judge_calls_back(calls: Sequence[CallBack]) -> Finding:
    """Whether nodes that were asked to call this machine back reached it."""
    asked = [call for call in calls if call.is_asked]
    if not asked:
        why = "; ".join(f"{call.label}: {call.reason}" for call in calls)
        return skip(REACHABLE, f"no node could be asked to call back{f' ({why})' if why else ''}")
    missed = [call for call in asked if not call.reached_host]
    reached = [f"{call.label} at {call.reached_host}" for call in asked if call.reached_host]
    if not missed:
        return ok(REACHABLE, f"called back by {', '.join(reached)}")
    said = "; ".join(f"{call.label} does not reach it ({call.reason})" for call in missed)
    if reached:
        said += f"; but called back by {', '.join(reached)}"
    return warn(REACHABLE, said, f"open the gRPC port of this machine's firewall, and {_FORWARD}")


def _judge_source(seen: Sequence[tuple[WayFacts, str, int]], announce: str | None) -> Finding:
    """Others see one of this machine's own addresses; whether it is the one that they are told."""
    for way, host, _ in seen:
        told = announce or way.own_address
        if told is not None and announce is None and _is_other_literal(told, host):
            return warn(
                NAT,
                f"none, but {way.target.label} sees {host}, and peers are told {told}",
                f"--announce {host}",
            )
    return ok(NAT, f"none: others see this machine's own address {seen[0][1]}")


def _is_other_literal(told: str, seen: str) -> bool:
    """Whether both are addresses, and differ; loopback differs from nothing."""
    try:
        place = ipaddress.ip_address(seen)
        return not place.is_loopback and ipaddress.ip_address(told) != place
    except ValueError:
        return False


def _is_own(host: str, way: WayFacts, own: set[str]) -> bool:
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
    return is_loopback or host in own or host == way.own_address


def _observed(ways: Iterable[WayFacts]) -> Iterator[tuple[WayFacts, str, int]]:
    """From where each one sees this machine: by datagram if possible, with the port."""
    for way in ways:
        if way.echoed is not None:
            yield way, way.echoed.observed.host, way.echoed.observed.port
        elif way.reply is not None and way.reply.observed.host:
            yield way, way.reply.observed.host, 0


def _judge_silence(facts: WayFacts) -> Finding:
    target = facts.target
    said = f"{target.label}: {facts.http_failure or 'no answer'}"
    if facts.greeted_port:
        said += f"; no answer to datagrams at {facts.greeted_port} either"
    if not target.is_given:
        return warn(PEERS, f"{said} (others know it)", "nothing, if that node has just stopped")
    return fail(PEERS, said, _advise(facts.http_failure, target))


def _advise(failure: str, target: Target) -> str:
    port = f"TCP {target.endpoint.port}"
    if "TLS" in failure:
        return f"write http://{target.endpoint}, unless a proxy there is to answer TLS"
    if "unreachable" in failure:
        return f"there is no way to {target.endpoint.host}: see the line on network"
    if "HTTP " in failure:
        return f"correct the port: something else answers at {port}"
    if target.greeted_port:
        return _advise_about_peer(target)
    if "refused" in failure:
        return f"start the node or tracker there, or correct the port ({port})"
    return f"see that a node or tracker runs there, and let {port} through the firewalls between"


def _advise_about_peer(target: Target) -> str:
    """Its port may be one for datagrams, which nobody answers who has another token."""
    ports = f"TCP {target.endpoint.port}, UDP {target.greeted_port}"
    return (
        f"start the node there, or correct the port (its HTTP or heartbeat port; asked were {ports}"
        "); if it runs there, give its swarm's token (--token-file), as nodes do not answer "
        "datagrams under another one, and let the port through the firewalls between"
    )


def _list_closed(facts: WayFacts) -> Iterator[tuple[str, str]]:
    """What does not pass though the target answers, with the port to open."""
    if facts.reply is None:
        yield f"not over HTTP ({facts.http_failure})", f"TCP {facts.target.endpoint.port}"
        return
    if facts.grpc_failure:
        port = facts.reply.grpc_port
        yield f"gRPC at {port} does not ({facts.grpc_failure})", f"TCP {port}"
    if facts.greeted_port and facts.echoed is None:
        yield f"no datagram at {facts.greeted_port}", f"UDP {facts.greeted_port}"


def _describe(facts: WayFacts) -> str:
    assert facts.reply is not None, "a way without a reply has something closed"
    after = "" if facts.rtt_s is None else f" in {1000 * facts.rtt_s:.0f} ms"
    if not facts.reply.grpc_port:
        known = "some nodes" if facts.reply.peers else "no node yet"
        return f"answers{after}: a bare tracker, which knows {known}"
    parts = [f"gRPC {facts.reply.grpc_port} is open"]
    if facts.echoed is not None:
        parts.append(f"datagrams pass at {facts.greeted_port}")
    return f"answers{after}; {', '.join(parts)}"
