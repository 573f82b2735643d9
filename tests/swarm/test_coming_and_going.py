"""Nodes that are killed, restarted, late, cut off or alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.rounds.phases import Phase
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import DEADLINE_S, Swarm
from neuroswarm.wire.signed import Kind

NAMES = ("anna", "bert", "carl", "dora")
LONG_ROUNDS = 0.4
"""Seconds of an inner step with which a round takes one and a half."""


def agreed_rounds(events: list[dict[str, object]], who: Member) -> list[int]:
    """Rounds in which a node's contribution was agreed, from another node's log."""
    me = who.node_id.hex()
    return [e["round"] - 1 for e in events if e["event"] == "commit" and me in e["signers"]]  # type: ignore[operator,misc]


async def test_a_killed_node_contributes_again_within_two_rounds_of_its_restart(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        *others, dora = await swarm.found(*NAMES)
        await swarm.until_round(2)
        await swarm.bury(dora)
        await swarm.more_rounds(2, others)
        (again,) = await swarm.restart(dora)
        assert again.node_id == dora.node_id
        came_back = max(member.round for member in others)
        await swarm.until_round(came_back + 3)
        await swarm.until_level()
        rounds = agreed_rounds(await others[0].events(), dora)
        assert any(came_back <= round_ <= came_back + 2 for round_ in rounds), (came_back, rounds)
        assert all(len(found) == 1 for found in (await swarm.digests()).values())
        assert sum(m.parts.rounds.intake.counters["equivocators"] for m in swarm.running) == 0


async def test_a_late_joiner_catches_up_and_contributes(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        others = await swarm.found(*NAMES[:3])
        await swarm.until_round(2)
        (dora,) = await swarm.start("dora")
        assert dora.round >= 2
        await swarm.until(
            lambda: all(dora.node_id in m.parts.replica.state.applied for m in swarm.running),
            what="dora's part",
        )
        await swarm.until_level()
        digests = await swarm.digests()
        assert digests
        assert all(len(found) == 1 for found in digests.values()), digests
        assert agreed_rounds(await others[0].events(), dora)


async def test_a_peer_that_fell_a_little_behind_replays_the_rounds(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        await swarm.found(*NAMES[:3])
        (olga,) = await swarm.start("olga", trains=False)
        await fall_behind(swarm, olga, rounds=3)
        assert olga.statistics.downloads == 0
        assert olga.statistics.rounds_committed >= 3


async def test_a_peer_that_fell_far_behind_downloads_a_state(tmp_path: Path):
    # Slow enough that the states which holders retain are there for longer than it takes to ask.
    async with Swarm(tmp_path, step_s=0.15) as swarm:
        await swarm.found(*NAMES[:3])
        (olga,) = await swarm.start("olga", trains=False)
        await fall_behind(swarm, olga, rounds=12)
        assert olga.statistics.downloads >= 1
        assert olga.statistics.repairs == 0


async def fall_behind(swarm: Swarm, who: Member, *, rounds: int) -> None:
    """Cut a node off for some rounds, join it again and wait until it has caught up."""
    others = [member for member in swarm.running if member is not who]
    cut = swarm.network.partition([who.node_id], [member.node_id for member in others])
    await swarm.more_rounds(rounds, others)
    missed = max(member.round for member in others)
    assert who.round <= missed - rounds
    swarm.network.heal()
    await swarm.until_round(missed, [who])
    await swarm.until_level()
    assert cut.fired > 0
    assert all(len(found) == 1 for found in (await swarm.digests()).values())


# Slow to settle, so that the power goes when all have published and nobody has confirmed; patient,
# so that nobody who is slow to come back is left out of the round.
UNHURRIED = {
    "settle_s": 5.0, "min_settle_s": 1.0, "min_grace_s": 15.0, "contagion_s": 15.0,
    "ballot_deadline_s": 15.0, "confirm_deadline_s": 15.0, "collect_deadline_s": 30.0,
}  # fmt: skip


async def until_all_have_closed(swarm: Swarm, members: list[Member]) -> set[str]:
    """Wait until everybody's ballot of the same round is out; the contributions published in it."""

    def is_mid_round() -> bool:
        phases = {member.parts.rounds.driver.phase for member in members}
        rounds = {member.round for member in members}
        if phases != {Phase.CLOSED} or len(rounds) > 1 or 0 in rounds:
            return False
        about = members[0].round, members[0].digest
        registers = [member.parts.rounds.intake.register for member in members]
        return all(len(each.find(Kind.BALLOT, *about)) == len(members) for each in registers)

    await swarm.until(is_mid_round, what="everyone to have published")
    for member in members:
        await member.parts.recorder.drained()
    assert is_mid_round()
    register = members[0].parts.rounds.intake.register
    about = members[0].round, members[0].digest
    return {signed.id.hex() for signed in register.find(Kind.CONTRIBUTION, *about)}


async def test_what_was_agreed_outlives_a_power_cut_though_its_author_never_comes_back(
    tmp_path: Path,
):
    async with Swarm(tmp_path, rounds=UNHURRIED) as swarm:
        members = await swarm.found(*NAMES)
        published = await until_all_have_closed(swarm, members)
        round_ = members[0].round
        swarm.cut_power(*members)
        *others, dora = members
        await swarm.bury(dora)
        again = await swarm.restart(*others, trains=False)
        await swarm.train_together(again)
        await swarm.until_round(round_ + 1, again)
        await swarm.until_level(again)
        assert len(published) == 4
        for member in again:
            assert member.parts.rounds.intake.counters["equivocators"] == 0
            commits = [
                event
                for event in await member.events()
                if event["event"] == "commit" and event["round"] == round_ + 1
            ]
            assert [set(event["contributions"]) for event in commits] == [published]
            assert dora.node_id.hex() in commits[0]["signers"]
        assert all(len(found) == 1 for found in (await swarm.digests(again)).values())


@pytest.mark.timeout(180)
async def test_after_a_power_cut_in_mid_round_everyone_keeps_its_word(tmp_path: Path):
    async with Swarm(tmp_path, rounds=UNHURRIED) as swarm:
        members = await swarm.found(*NAMES)
        published = await until_all_have_closed(swarm, members)
        round_ = members[0].round
        swarm.cut_power(*members)
        again = await swarm.restart(*members, trains=False)
        assert [member.round for member in again] == [round_] * 4
        await swarm.train_together(again)
        await swarm.until(  # a round may use up its deadlines, which are long here
            lambda: all(member.round >= round_ + 2 for member in again),
            within_s=3 * DEADLINE_S,
            what="two rounds",
        )
        await swarm.until_level()
        assert len(published) == 4
        for member in again:
            intake = member.parts.rounds.intake
            assert intake.counters["equivocators"] == 0
            events = [e for e in await member.events() if e.get("round") == round_ + 1]
            commits = [e for e in events if e["event"] == "commit"]
            assert [set(e["contributions"]) for e in commits] == [published]
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def test_a_node_alone_trains_in_sets_of_one(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(8)
        events = [e for e in await anna.events() if e["event"] == "commit"]
        assert [e["signers"] for e in events[:8]] == [[anna.node_id.hex()]] * 8
        losses = [e["held_out_loss"] for e in events]
        assert losses[-1] < losses[0]
        assert anna.statistics.foreign_contributions_used == 0


async def test_those_left_train_on_when_the_founder_dies(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        anna, *others = await swarm.found(*NAMES)
        await swarm.until_round(1)
        await swarm.bury(anna)
        await swarm.more_rounds(4, others)
        await swarm.until_level(others)
        digests = await swarm.digests(others)
        assert all(len(found) == 1 for found in digests.values()), digests
        newest = [e for e in await others[0].events() if e["event"] == "commit"][-1]
        assert set(newest["signers"]) <= {member.node_id.hex() for member in others}
