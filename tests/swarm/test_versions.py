"""Swarms of several protocol versions: neighbours work together, others are told and reported."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any

import pytest

from neuroswarm.diloco.later import Later
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ConfigError, PeerError, ProtocolViolation
from neuroswarm.membership.peer_table import PeerTable
from neuroswarm.node.crowd import Crowd
from neuroswarm.node.peer_versions import PeerVersions
from neuroswarm.testing.fake_clock import FakeClock
from neuroswarm.testing.member import Member
from neuroswarm.testing.speaker import SWARM, Speaker
from neuroswarm.testing.swarm import Swarm
from neuroswarm.transport import WRONG_VERSION
from neuroswarm.values import FORMER_PROTOCOL, PROTOCOL_VERSION, PeerAddress

ROUNDS = 3


class NextRules(Rules):
    """Rules with one that this version brought."""

    weighs_by_age: Annotated[bool, Later(since=PROTOCOL_VERSION, before=False)] = True


def versions(member: Member) -> dict[str, Any]:
    found = member.parts.reporter.status()["protocol"]
    assert isinstance(found, dict)
    return found


def used_foreign(member: Member) -> int:
    return member.statistics.foreign_contributions_used


@pytest.mark.slow
@pytest.mark.parametrize("other", [FORMER_PROTOCOL, PROTOCOL_VERSION + 1])
async def test_neighbouring_versions_train_together(tmp_path: Path, other: int):
    async with Swarm(tmp_path) as swarm:
        swarm.protocols["other"] = other
        here, there = await swarm.found("here", "other")
        await swarm.until(
            lambda: all(used_foreign(m) >= ROUNDS for m in (here, there)),
            what="both to use the other's contributions",
        )
        logs = [await m.digests() for m in (here, there)]
        shared = logs[0].keys() & logs[1].keys()
        assert len(shared) >= ROUNDS
        assert all(logs[0][r] == logs[1][r] for r in shared)
        assert versions(here) == {
            "announced": PROTOCOL_VERSION,
            "spoken_by_all": min(PROTOCOL_VERSION, other),
            "peers": {str(other): 1},
            "apart": [],
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "who"), [(PROTOCOL_VERSION + 2, "this node"), (PROTOCOL_VERSION - 2, "that one")]
)
async def test_versions_two_apart_do_without_each_other_and_say_who_is_to_be_upgraded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, theirs: int, who: str
):
    async with Swarm(tmp_path) as swarm:
        here, mate = await swarm.found("here", "mate")
        swarm.protocols["other"] = theirs
        starting = asyncio.create_task(swarm.start("other"))
        await swarm.until(lambda: has_others_apart(swarm, "here", "other"), what="both to tell")
        (told,) = versions(here)["apart"]
        assert told["node_id"] == swarm.members["other"].node_id.hex()
        assert (told["protocol"], who in told["reason"]) == (theirs, True)
        assert f"it speaks protocol {theirs}, this node {PROTOCOL_VERSION}: upgrade" in caplog.text
        other = swarm.members["other"]
        with pytest.raises(ProtocolViolation, match=re.escape(WRONG_VERSION)):
            await other.parts.carriers.rpc.call(address_of(here), "Gossip/Push", b"", timeout_s=5.0)
        await swarm.more_rounds(ROUNDS, [here, mate])
        assert not starting.done(), "it neither ends nor starts a swarm of its own"
        assert other.node_id not in here.parts.rounds.driver.electorate.live
        starting.cancel()
        swarm.protocols["other"] = FORMER_PROTOCOL  # the one that is behind is upgraded
        await asyncio.gather(starting, return_exceptions=True)
        (upgraded,) = await swarm.restart(other)
        await swarm.until(lambda: used_foreign(upgraded) > 0, what="the upgraded to take part")
        assert not versions(here)["apart"]


@pytest.mark.slow
async def test_a_node_between_two_versions_that_do_not_talk_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with Swarm(tmp_path) as swarm:
        swarm.protocols |= {"old": PROTOCOL_VERSION - 1, "new": PROTOCOL_VERSION + 1}
        await swarm.start("between", trains=False)
        starting = asyncio.create_task(swarm.start("old", "new", trains=False))
        wanted = f"speak protocols {PROTOCOL_VERSION - 1} to {PROTOCOL_VERSION + 1}, which do not"
        await swarm.until(lambda: wanted in caplog.text, what="it to say so")
        await starting


async def test_rules_that_a_peer_does_not_know_are_not_proposed():
    old = Speaker("old").heartbeat(protocol=FORMER_PROTOCOL)
    clock = FakeClock()
    peers = PeerTable(Speaker("me").node_id, 5.0)
    crowd = Crowd(peers, SWARM, clock, mute_after_s=30.0)
    crowd.require_known(NextRules())
    peers.observe(*old, clock.monotonic(), host_seen=None)
    crowd.require_known(NextRules(weighs_by_age=False))
    with pytest.raises(PeerError, match=f"need protocol {PROTOCOL_VERSION}, and some nodes speak"):
        crowd.require_known(NextRules())


def test_a_node_that_is_held_back_founds_no_swarm_that_its_version_does_not_know():
    versions = PeerVersions(FORMER_PROTOCOL)
    versions.require(NextRules(weighs_by_age=False).protocol)
    with pytest.raises(ConfigError, match=f"network.protocol_version is {FORMER_PROTOCOL}"):
        versions.require(NextRules().protocol)


def has_others_apart(swarm: Swarm, *names: str) -> bool:
    members = [swarm.members[name] for name in names if name in swarm.members]
    made = [m for m in members if m.core.parts is not None]
    return len(made) == len(names) and all(versions(m)["apart"] for m in made)


def address_of(member: Member) -> PeerAddress:
    return PeerAddress(member.node_id, member.parts.carriers.grpc_endpoint)
