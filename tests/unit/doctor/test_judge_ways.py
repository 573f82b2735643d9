"""What was found on the ways to others, judged."""

import re
from dataclasses import replace

import pytest

from neuroswarm.doctor.calling_back import CallBack
from neuroswarm.doctor.datagram_asker import Echoed
from neuroswarm.doctor.exploring import Explored, NameFacts
from neuroswarm.doctor.finding import Finding, Level
from neuroswarm.doctor.judge_ways import (
    judge_calls_back,
    judge_mtu,
    judge_names,
    judge_nat,
    judge_way,
    judge_ways,
    tell_time,
)
from neuroswarm.doctor.local import TimeTold
from neuroswarm.doctor.way import Target, WayFacts
from neuroswarm.hardware.interfaces import Interface
from neuroswarm.values import Endpoint
from neuroswarm.wire.probes import ProbeReply

OWN = "10.0.0.5"
ETH = Interface("eth0", (OWN,), 1500)
NODE = Target("tracker http://10.0.0.1:7101", Endpoint("10.0.0.1", 7101), "10.0.0.1")
REPLY = ProbeReply(0.0, Endpoint(OWN, 0), 8101, 9999)
GOOD = WayFacts(
    NODE,
    rtt_s=0.003,
    reply=REPLY,
    offset_s=0.5,
    grpc_failure="",
    echoed=Echoed(0.001, Endpoint(OWN, 4000)),
    greeted_port=9999,
    own_address=OWN,
)


def check(finding: Finding, level: Level, said: str, fix: str = "") -> None:
    assert finding.level is level, finding
    assert re.search(said, finding.said), finding
    assert re.search(fix, finding.fix), finding
    assert "\n" not in str(finding)


def seen_as(host: str, port: int) -> WayFacts:
    echoed = Echoed(0.001, Endpoint(host, port))
    return replace(GOOD, echoed=echoed)


@pytest.mark.parametrize(
    ("facts", "level", "said", "fix"),
    [
        (GOOD, Level.OK, "answers in 3 ms; gRPC 8101 is open, datagrams pass at 9999", "^$"),
        (
            replace(GOOD, reply=ProbeReply(0.0, Endpoint(OWN, 0)), echoed=None, greeted_port=0),
            Level.OK,
            "a bare tracker, which knows no node yet",
            "^$",
        ),
        (
            replace(GOOD, grpc_failure="connection refused"),
            Level.FAIL,
            "gRPC at 8101 does not .connection refused",
            r"let TCP 8101 of 10\.0\.0\.1",
        ),
        (
            replace(GOOD, echoed=None, grpc_failure="no answer in 4 s"),
            Level.FAIL,
            "no datagram at 9999",
            "TCP 8101 and UDP 9999",
        ),
        (
            WayFacts(NODE, http_failure="it refuses this swarm token", is_refused=True),
            Level.FAIL,
            "refuses",
            "token of its swarm",
        ),
        (
            WayFacts(NODE, http_failure="connection refused"),
            Level.FAIL,
            "refused",
            "start the node",
        ),
        (
            WayFacts(
                replace(NODE, greeted_port=7101),
                http_failure="connection refused",
                greeted_port=7101,
            ),
            Level.FAIL,
            "connection refused; no answer to datagrams at 7101 either",
            r"its HTTP or heartbeat port; asked were TCP 7101, UDP 7101.*swarm's token",
        ),
        (
            WayFacts(NODE, http_failure="it does not answer TLS (try http://)"),
            Level.FAIL,
            "TLS",
            r"write http://10\.0\.0\.1:7101",
        ),
        (WayFacts(NODE, http_failure="no answer in 4 s"), Level.FAIL, "4 s", "firewalls"),
        (
            WayFacts(NODE, http_failure="network is unreachable"),
            Level.FAIL,
            "unreachable",
            "line on network",
        ),
        (
            WayFacts(NODE, http_failure="no node of this version there (HTTP 404)"),
            Level.FAIL,
            "404",
            "something else answers",
        ),
        (
            WayFacts(replace(NODE, is_given=False), http_failure="no answer", greeted_port=9999),
            Level.WARN,
            "no answer to datagrams at 9999 either .others know it",
            "just stopped",
        ),
        (
            replace(
                GOOD,
                target=replace(NODE, endpoint=Endpoint("10.0.0.1", 9999), greeted_port=9999),
                reply=None,
                http_failure="connection refused",
            ),
            Level.OK,
            "answers datagrams",
            "^$",
        ),
        (
            replace(
                GOOD, target=replace(NODE, greeted_port=9999), reply=None, http_failure="no answer"
            ),
            Level.FAIL,
            "not over HTTP .no answer",
            "TCP 7101",
        ),
    ],
)
def test_one_way(facts: WayFacts, level: Level, said: str, fix: str):
    check(judge_way(facts), level, said, fix)


def test_names():
    check(judge_names([]), Level.SKIP, "not needed")
    found = [NameFacts("a.lan", ("10.0.0.1", "10.0.0.2"))]
    check(judge_names(found), Level.OK, r"a\.lan is 10\.0\.0\.1, 10\.0\.0\.2")
    found.append(NameFacts("b.lan", failure="unknown host b.lan"))
    check(judge_names(found), Level.FAIL, "unknown host b.lan", "nameserver")


def test_large_packets():
    check(judge_mtu([]), Level.SKIP, "nobody")
    check(judge_mtu([GOOD]), Level.OK, "both ways")
    lost = replace(GOOD, large_failures=("64 KiB to it over TCP: no answer in 4 s",))
    check(judge_mtu([GOOD, lost]), Level.FAIL, "black hole suspected.*64 KiB", "mtu 1280")


@pytest.mark.parametrize(
    ("ways", "announce", "level", "said", "fix"),
    [
        ([], None, Level.SKIP, "nobody", "^$"),
        ([GOOD], None, Level.OK, rf"none: .*{OWN}", "^$"),
        ([seen_as("127.0.0.1", 1)], None, Level.OK, "none", "^$"),
        ([seen_as("203.0.113.9", 1)], None, Level.WARN, "see 203.0.113.9; of what kind", "forward"),
        (
            [seen_as("203.0.113.9", 7), seen_as("203.0.113.9", 7)],
            None,
            Level.WARN,
            "the same port for every peer",
            "forward",
        ),
        (
            [seen_as("203.0.113.9", 7), seen_as("203.0.113.9", 8)],
            None,
            Level.WARN,
            "symmetric",
            "one peer that can be reached",
        ),
        (
            [seen_as("203.0.113.9", 7), seen_as("203.0.113.9", 8)],
            "203.0.113.9",
            Level.OK,
            "peers are told 203.0.113.9",
            "^$",
        ),
        (
            [replace(GOOD, echoed=None, reply=ProbeReply(0.0, Endpoint("203.0.113.9", 0)))],
            None,
            Level.WARN,
            "203.0.113.9; of what kind",
            "forward",
        ),
        (
            [replace(seen_as("10.0.0.6", 7), own_address=OWN)],
            None,
            Level.WARN,
            "sees 10.0.0.6, and peers are told 10.0.0.5",
            "--announce 10.0.0.6",
        ),
    ],
)
def test_translation(ways: list[WayFacts], announce: str | None, level: Level, said: str, fix: str):
    interfaces = [ETH, Interface("eth1", ("10.0.0.6",), 1500)]
    check(judge_nat(ways, interfaces, announce), level, said, fix)


def test_calls_back():
    reached = CallBack("a", OWN)
    missed = CallBack("b", reason="connection refused")
    mute = CallBack("c", reason="it did not greet back", is_asked=False)
    check(judge_calls_back([]), Level.SKIP, "no node could be asked to call back$")
    check(judge_calls_back([mute]), Level.SKIP, "c: it did not greet back")
    check(judge_calls_back([reached, mute]), Level.OK, f"called back by a at {OWN}")
    check(judge_calls_back([missed]), Level.WARN, "b does not reach it .connection", "forward")
    check(judge_calls_back([missed, reached]), Level.WARN, "but called back by a", "gRPC port")


def test_time_is_the_median_of_all_clocks():
    assert tell_time([]) == TimeTold()
    assert tell_time([WayFacts(NODE)]) == TimeTold()
    assert tell_time([GOOD]) == TimeTold(0.5, f"the clock of {NODE.label}")
    others = [
        replace(GOOD, target=replace(NODE, label=str(offset)), offset_s=offset)
        for offset in (1.0, 2.0, 99.0)
    ]
    assert tell_time(others) == TimeTold(2.0, "the clocks of 3 others")


def test_whole_report():
    alone = list(judge_ways(Explored(), [ETH]))
    assert [finding.level for finding in alone] == [Level.SKIP]
    found = list(judge_ways(Explored((), (GOOD,)), [ETH]))
    assert [f.check for f in found] == ["dns", "peers", "mtu", "nat", "reachable"]
