"""The owner of a swarm changes its rules at a round boundary, and expels a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroswarm.diloco.amending import propose
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import BadSignature, ProtocolViolation
from neuroswarm.testing.member import Member
from neuroswarm.testing.speaker import Speaker
from neuroswarm.testing.swarm import Swarm
from neuroswarm.wire.signed import Signed

OWNER = Speaker("owner").key
OWNED = {"owner": OWNER.public_key.hex()}


def proposal(member: Member, by: Speaker | None = None, **changes: Any) -> Signed:
    present = member.parts.replica.state.rules
    values = {**present.model_dump(), **changes, "revision": present.revision + 1}
    key = OWNER if by is None else by.key
    return propose(member.parts.cohort.swarm_id, Rules(**values), key)


async def test_all_members_change_their_rules_in_the_same_round(tmp_path: Path):
    async with Swarm(tmp_path, network=OWNED) as swarm:
        members = await swarm.found("anna", "bert", "carl")
        await swarm.until_round(2)
        amendment = proposal(
            members[0], codec="topk", topk_chunk=256, topk_kept=16,
            aggregation_method="geometric_median", inner_steps=6,
        )  # fmt: skip
        members[0].parts.rounds.intake.propose(amendment)
        await swarm.until(
            lambda: all(m.parts.replica.state.rules.revision == 1 for m in members),
            what="the new rules everywhere",
        )
        await swarm.more_rounds(3)
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        changed = set()
        for member in members:
            events = [e for e in await member.events() if e["event"] == "commit"]
            changed.add(next(e["round"] for e in events if e["rules_revision"] == 1))
            assert member.parts.replica.state.rules.codec == "topk"
            assert events[-1]["foreign_used"] > 0, "contributions are coded the new way"
        assert len(changed) == 1
        (late,) = await swarm.start("dora")
        assert late.parts.replica.state.rules.revision == 1
        (again,) = await swarm.restart(members[1])
        await swarm.more_rounds(2)
        await swarm.until_level()
        assert again.parts.replica.state.rules.inner_steps == 6


async def test_only_the_owner_changes_rules_and_only_once(tmp_path: Path):
    async with Swarm(tmp_path, network=OWNED) as swarm:
        (anna,) = await swarm.start("anna")
        intake = anna.parts.rounds.intake
        await swarm.until(lambda: intake.state is not None, what="a round in progress")
        with pytest.raises(BadSignature, match="owner"):
            intake.propose(proposal(anna, by=Speaker("mallory"), inner_steps=1))
        amendment = proposal(anna, inner_steps=7)
        intake.propose(amendment)
        await swarm.until(
            lambda: intake.state is not None and intake.state.rules.revision == 1, what="agreement"
        )
        intake.propose(amendment)  # said again: no error, and no effect
        stale = propose(
            anna.parts.cohort.swarm_id,
            Rules(**{**anna.parts.replica.state.rules.model_dump(), "inner_steps": 8}),
            OWNER,
        )
        with pytest.raises(ProtocolViolation, match="revision"):
            intake.propose(stale)
        await swarm.more_rounds(2)
        assert anna.parts.replica.state.rules.revision == 1


async def test_an_expelled_node_is_not_heard_until_it_is_readmitted(tmp_path: Path):
    async with Swarm(tmp_path, network=OWNED) as swarm:
        *kept, mallory = await swarm.found("anna", "bert", "carl", "mallory")
        await swarm.until_round(1)
        kept[0].parts.rounds.intake.propose(proposal(kept[0], expelled=(mallory.node_id.hex(),)))

        def is_expelled() -> bool:
            return all(m.parts.rounds.crowd.is_banned(mallory.node_id) for m in kept)

        await swarm.until(is_expelled, what="the end of mallory's membership")
        since = max(m.round for m in kept)
        await swarm.more_rounds(3, kept)
        await swarm.until_level(kept)
        for member in kept:
            later = [e for e in await member.events() if e["round"] > since + 1]
            assert later
            assert mallory.node_id.hex() not in {s for e in later for s in e.get("signers", ())}
        assert mallory.parts.replica.state.round < min(m.round for m in kept)
        kept[1].parts.rounds.intake.propose(proposal(kept[1], expelled=()))
        await swarm.until(lambda: not is_expelled(), what="its return")

        def is_back() -> bool:
            return mallory.node_id in kept[0].parts.rounds.driver.electorate.live

        await swarm.until(is_back, what="mallory in the electorate")
        await swarm.more_rounds(1, [*kept, mallory])
        await swarm.until_level()
