"""Members that lie: with two statements for one round, or with what they publish."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neuroswarm.errors import ProtocolViolation
from neuroswarm.gossip.outbox import Parcel
from neuroswarm.gossip.push import encode_push
from neuroswarm.rounds.phases import Phase
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.member import Member
from neuroswarm.testing.speaker import Speaker
from neuroswarm.testing.swarm import Swarm, negated
from neuroswarm.v1 import gossip_pb2
from neuroswarm.values import NodeId, short
from neuroswarm.wire.messages import Contribution, FragmentPayload
from neuroswarm.wire.signed import Kind, sign

NAMES = ("anna", "bert", "carl", "dora")


async def test_an_equivocator_is_banned_everywhere_by_proof(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl, dora = await swarm.found(*NAMES)
        await swarm.until_round(1)
        await tell_two_stories(dora, anna)
        honest = (anna, bert, carl)

        def all_have_banned() -> bool:
            return all(m.parts.rounds.crowd.is_banned(dora.node_id) for m in honest)

        await swarm.until(all_have_banned, what="the ban of dora")
        banned_in = max(member.round for member in honest)
        await swarm.more_rounds(3, honest)
        await swarm.until_level(honest)
        assert all(len(found) == 1 for found in (await swarm.digests(honest)).values())
        for member in honest:
            assert member.parts.rounds.intake.counters["equivocators"] == 1
            later = [e for e in await member.events() if e["round"] > banned_in + 1]
            assert later
            assert dora.node_id.hex() not in {s for e in later for s in e.get("signers", ())}
        (eve,) = await swarm.start("eve")
        (anna,) = await swarm.restart(anna)
        await swarm.until(
            lambda: all(m.parts.rounds.crowd.is_banned(dora.node_id) for m in (anna, eve)),
            what="the ban by a newcomer, and by a node that was restarted",
        )


async def tell_two_stories(liar: Member, listener: Member) -> None:
    """Send one listener two contributions for one round, both signed with the liar's own key.

    They are not to be relayed: what convicts the liar elsewhere is the listener's proof.
    """
    parts, state = liar.parts, liar.parts.replica.state
    size = FragmentPayload(0, bytes(32), 1)
    story = Contribution(
        parts.cohort.swarm_id, state.round + 1, b"d" * 32, parts.cohort.architecture,
        "int4", inner_steps=4, tokens=100, loss=1.0, fragments=(size,),
    )  # fmt: skip
    stories = [story, replace(story, tokens=200)]
    push = encode_push(
        Parcel(sign(Kind.CONTRIBUTION, story.encode(), liar.key)) for story in stories
    )
    address = next(p.address for p in parts.rounds.crowd.live() if p.node_id == listener.node_id)
    await parts.carriers.rpc.call(address, "Gossip/Push", push, timeout_s=5)


async def test_amplified_lies_do_no_harm_and_cost_no_honest_peer_its_part(tmp_path: Path):
    async with Swarm(tmp_path / "hostile") as swarm:
        honest = await swarm.found("anna", "bert", "carl", "dora")
        (mallory,) = await swarm.start("mallory", tamper=negated(10.0))
        rejected: dict[str, str] = {}

        def note_rejections_until_round_ten() -> bool:
            """On a slow machine ten rounds may pass before the liar has the model to lie about."""
            for member in honest:
                rejected.update(member.statistics.rejections)
            return bool(rejected) and all(member.round >= 10 for member in honest)

        await swarm.until(note_rejections_until_round_ten, what="round 10 and a rejection")
        await swarm.until_level(honest)
        assert all(len(found) == 1 for found in (await swarm.digests(honest)).values())
        events = commits(await honest[0].events())
        signer_of = {
            short(bytes.fromhex(c)): signer
            for event in events
            for c, signer in zip(event["contributions"], event["signers"], strict=True)
        }
        assert mallory.node_id.hex() in signer_of.values()
        assert {signer_of[c] for c in rejected if c in signer_of} == {mallory.node_id.hex()}
        losses = [event["held_out_loss"] for event in events]
        assert losses[-1] < losses[0]


async def test_nobody_gets_a_payload_before_two_thirds_have_sealed_the_round(tmp_path: Path):
    async with Swarm(tmp_path, rounds={"seal_deadline_s": 15.0}) as swarm:
        members = await swarm.found("anna", "bert", "carl")
        await swarm.until_round(1)
        seals = swarm.network.drop(method="Gossip/Push", when=carries_a_seal)
        await swarm.until(
            lambda: all(m.parts.rounds.driver.phase is Phase.SEALED for m in members),
            what="everyone to have sealed and heard no other seal",
        )
        held = [held_in_this_round(member) for member in members]
        assert [set(some) for some in held] == [{member.node_id} for member in members]
        askers = (*members[1:], members[0])
        async with asyncio.TaskGroup() as tasks:
            for asked, asker, some in zip(members, askers, held, strict=True):
                tasks.create_task(is_refused(asker, asked.node_id, some[asked.node_id]))
        assert seals.fired > 0
        swarm.network.remove(seals)
        await swarm.more_rounds(2)
        await swarm.until_level()
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def is_refused(asker: Member, of: NodeId, contribution: bytes) -> None:
    """The payload of a contribution, which the one who made it is asked for."""
    request = gossip_pb2.PayloadRequest(contribution=contribution).SerializeToString()
    source = asker.parts.rounds.crowd.sources(of)[0]
    with pytest.raises(ProtocolViolation, match="not held"):
        await anext(asker.parts.carriers.rpc.stream(source, "Gossip/Payload", request, timeout_s=5))


def held_in_this_round(member: Member) -> dict[NodeId, bytes]:
    """Contributions of which a member has the payload, by their signers."""
    intake, state = member.parts.rounds.intake, member.parts.replica.state
    found = intake.register.find(Kind.CONTRIBUTION, state.round, state.digest)
    entries = {signed.signer: intake.archive.get(signed.id) for signed in found}
    return {s: e.signed.id for s, e in entries.items() if e is not None and e.payload}


def carries_a_seal(passage: Passage) -> bool:
    request = gossip_pb2.PushRequest.FromString(passage.data)
    return any(relayed.message.kind == Kind.SEAL for relayed in request.messages)


def commits(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "commit"]


async def test_mute_voters_do_not_stop_the_rounds(tmp_path: Path):
    """Many times more of them than honest peers: they live by heartbeats, and say nothing."""
    async with Swarm(tmp_path, rounds={"mute_after_s": 1.0}) as swarm:
        honest = await swarm.found("anna", "bert")
        await swarm.until_round(1)
        mutes, told = [Speaker(f"mute {n}") for n in range(20)], Counter[str]()

        def mutes_tell_and_rounds_go_on() -> bool:
            told["sequence"] += 1
            for member in honest:
                state, peers = member.parts.replica.state, member.parts.membership.peers
                for mute in mutes:
                    record = mute.heartbeat(
                        told["sequence"], swarm_id=member.parts.cohort.swarm_id,
                        round=state.round, digest=state.digest, inner_steps=10**6,
                    )  # fmt: skip
                    peers.observe(*record, member.core.now(), host_seen=None)
            return all(member.round >= told["wanted"] for member in honest)

        told["wanted"] = max(member.round for member in honest) + 5
        await swarm.until(mutes_tell_and_rounds_go_on, what="five rounds among mute voters")
        assert all(len(member.parts.rounds.crowd.live()) > 20 for member in honest)
        await swarm.until_level(honest)
        assert all(len(found) == 1 for found in (await swarm.digests(honest)).values())


async def test_a_peer_that_claims_to_be_ahead_and_never_answers_is_asked_once_at_a_time(
    tmp_path: Path,
):
    async with Swarm(tmp_path, rounds={"patience_s": 0.02}) as swarm:
        (anna,) = await swarm.start("anna")
        mallory, calls = Speaker("mallory"), Counter[str]()

        async def never(_caller: NodeId, _request: bytes) -> bytes:
            calls.update(asked=1, now=1)
            calls["most"] = max(calls["most"], calls["now"])
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                calls["now"] -= 1

        rpc = swarm.network.rpc(mallory.node_id, mallory.address.endpoint)
        rpc.serve_unary("Gossip/Result", never)
        claim = {"swarm_id": anna.parts.cohort.swarm_id, "round": 10**6, "is_training": False}

        def tell_again() -> bool:
            record = mallory.heartbeat(calls["told"], **claim)
            anna.parts.membership.peers.observe(*record, anna.core.now(), host_seen=None)
            calls["told"] += 1
            return calls["asked"] >= 2

        async with rpc:
            await swarm.until(tell_again, what="the second question to mallory")
        assert calls["most"] == 1
        assert anna.round > 0
