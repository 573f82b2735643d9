"""Nodes whose data caps run out: they skip, follow, fall silent, come back, and hold nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from member_books import Books

from neuroswarm.metering.allowance import Allowance
from neuroswarm.metering.tally import Tally, encode_tally
from neuroswarm.testing.member import Member
from neuroswarm.testing.shifted_clock import ShiftedClock
from neuroswarm.testing.swarm import INNER_STEPS, Swarm

GB = 10**9
DAY_S = 86_400.0
CAP = {"data_caps": ["1GB/day"]}
FOR_EVER_S = 900.0
PATIENT = {
    "collect_deadline_s": FOR_EVER_S,
    "ballot_deadline_s": FOR_EVER_S,
    "seal_deadline_s": FOR_EVER_S,
    "mute_after_s": FOR_EVER_S,
}
"""Deadlines that no test lives to see: whoever waited for a capped node would wait for ever. Not
that of confirms, which ends a round whose confirms differ."""

SPARING, SILENT = 0.95, 0.99


async def begin(swarm: Swarm, clock: ShiftedClock, *names: str) -> list[Member]:
    """Members that know each other and train."""
    first, *others = names
    made = await swarm.start(first, trains=False, clock=clock)
    made += await swarm.start(*others, trains=False, clock=clock)
    for member in made:
        member.rests_at = 10**6
    await swarm.train_together(made)
    await swarm.until_round(1)
    return made


def use_up(share: float, *members: Member) -> None:
    """As if they had moved that share of their cap today."""
    for member in members:
        meter = member.parts.meter
        meter.tally.add(int(share * GB) - meter.tally.day.total, 0)
        meter.look()


async def signers_since(member: Member, round_: int) -> list[set[str]]:
    """Whose contributions were agreed in each round from that one on."""
    events = await member.events()
    return [set(e["signers"]) for e in events if e["event"] == "commit" and e["round"] > round_]


def ids(members: Collection[Member]) -> set[str]:
    return {member.node_id.hex() for member in members}


async def check_equal(swarm: Swarm) -> None:
    await swarm.until_level()
    assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def test_a_capped_node_skips_and_follows_while_nobody_waits_for_it(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, rounds=PATIENT, metering=CAP) as swarm:
        members = await begin(swarm, clock, "anna", "bert", "carl", "dora")
        *others, dora = members
        use_up(SPARING, dora)
        await swarm.more_rounds(1)
        began, steps = max(m.round for m in members), dora.parts.trainer.total.steps
        await swarm.more_rounds(6)
        assert dora.parts.trainer.total.steps > steps
        assert dora.parts.rounds.thrift.num_skipped >= 6
        found = await signers_since(others[0], began)
        assert len(found) >= 5
        assert all(signers <= ids(others) for signers in found)
        assert any(found)
        assert dora.core.is_voter
        published = dora.statistics.contributions_published
        clock.wall_offset_s += DAY_S
        await swarm.until(
            lambda: dora.statistics.contributions_published > published + 1, what="dora's return"
        )
        assert dora.parts.meter.allowance is Allowance.OPEN
        await check_equal(swarm)


async def test_no_inner_step_is_lost_over_a_capped_day(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.005, metering=CAP) as swarm:
        *others, dora = await swarm.start("anna", "bert", "carl", "dora", trains=False, clock=clock)
        dora.rests_at = 10**6
        books = Books(dora)
        await swarm.train_together([*others, dora])
        await swarm.until_round(1)
        use_up(SPARING, dora)
        await swarm.more_rounds(2)
        use_up(SILENT, dora)
        await swarm.more_rounds(2, others)
        clock.wall_offset_s += DAY_S
        agreed = dora.statistics.contributions_agreed
        await swarm.until(
            lambda: dora.statistics.contributions_agreed >= agreed + 2, what="dora's part"
        )
        dora.parts.compute.pause_training()
        for member in others:
            member.parts.compute.pause_training()
        await swarm.until_level()
        events = [e for e in await others[0].events() if e["event"] == "commit"]
        everything = {c for e in events for c in e["contributions"]}
        assert await books.missing(everything) < 1e-4
        assert all(len(found) == 1 for found in (await swarm.digests()).values())


async def test_all_capped_go_through_empty_rounds_at_their_usual_pace(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, rounds=PATIENT, metering=CAP) as swarm:
        members = await begin(swarm, clock, "anna", "bert", "carl")
        use_up(SPARING, *members)
        await swarm.more_rounds(1)
        began, state = max(m.round for m in members), members[0].parts.replica.state
        steps = [m.parts.trainer.total.steps for m in members]
        await swarm.more_rounds(5)
        taken = [m.parts.trainer.total.steps - n for m, n in zip(members, steps, strict=True)]
        num_rounds = max(m.round for m in members) - began
        assert (num_rounds - 2) * INNER_STEPS <= max(taken)  # at no other pace than with sets
        assert all(not signers for signers in await signers_since(members[0], began))
        after = members[0].parts.replica.state
        assert all(
            bool((a.params == b.params).all())
            for a, b in zip(state.fragments, after.fragments, strict=True)
        )
        clock.wall_offset_s += DAY_S
        later = max(m.round for m in members) + 1
        await swarm.more_rounds(4)
        assert set().union(*await signers_since(members[0], later)) == ids(members)
        await check_equal(swarm)


async def test_the_only_one_without_a_cap_goes_on_alone_in_the_midst_of_the_others(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, rounds=PATIENT, metering=CAP) as swarm:
        members = await begin(swarm, clock, "anna", "bert", "carl", "dora")
        anna, *others = members
        use_up(SPARING, *others)
        await swarm.more_rounds(1)
        began = max(m.round for m in members)
        await swarm.more_rounds(6)
        found = await signers_since(anna, began)
        assert all(signers <= ids([anna]) for signers in found)
        assert sum(map(bool, found)) >= len(found) - 2  # hardly a round is empty
        await check_equal(swarm)


async def test_a_node_whose_cap_is_used_up_leaves_trains_on_and_comes_back(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, metering=CAP) as swarm:
        *others, dora = await begin(swarm, clock, "anna", "bert", "carl", "dora")
        use_up(SILENT, dora)
        await swarm.until(
            lambda: all(dora.node_id not in m.parts.rounds.driver.electorate.live for m in others),
            what="dora's leave",
        )
        sent = dora.parts.carriers.rpc.bytes_sent, dora.parts.carriers.datagrams.bytes_sent
        steps, round_ = dora.parts.trainer.total.steps, dora.round
        await swarm.more_rounds(12, others)  # more than are remembered for late peers
        await swarm.until(
            lambda: dora.parts.trainer.total.steps >= steps + INNER_STEPS, what="dora's steps"
        )
        assert sent == (
            dora.parts.carriers.rpc.bytes_sent, dora.parts.carriers.datagrams.bytes_sent
        )  # fmt: skip
        assert dora.round <= round_ + 1
        assert not dora.core.is_voter
        clock.wall_offset_s += DAY_S
        agreed = dora.statistics.contributions_agreed
        await swarm.until(
            lambda: dora.statistics.contributions_agreed > agreed, what="dora's return"
        )
        assert dora.parts.trainer.total.steps > steps
        await check_equal(swarm)


async def test_capped_donors_give_no_state_and_the_others_do(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, metering=CAP) as swarm:
        anna, *capped = await begin(swarm, clock, "anna", "bert", "carl", "dora")
        use_up(SPARING, *capped)
        given = [member.parts.rounds.donor.bytes_given for member in capped]
        of_anna = anna.parts.rounds.donor.bytes_given
        await swarm.start("emil", "finn", clock=clock)
        assert anna.parts.rounds.donor.bytes_given > of_anna
        assert [member.parts.rounds.donor.bytes_given for member in capped] == given
        await swarm.more_rounds(2)
        await check_equal(swarm)


async def test_where_all_donors_are_capped_a_newcomer_waits_for_the_next_day(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, metering=CAP) as swarm:
        members = await begin(swarm, clock, "anna", "bert")
        use_up(SPARING, *members)
        given = [member.parts.rounds.donor.bytes_given for member in members]
        joining = asyncio.ensure_future(swarm.start("emil", clock=clock))
        await swarm.more_rounds(5, members)
        emil = swarm.members["emil"]
        assert emil.round == -1
        assert not joining.done()
        assert [member.parts.rounds.donor.bytes_given for member in members] == given
        clock.wall_offset_s += DAY_S
        await joining
        await swarm.more_rounds(2)
        await check_equal(swarm)


async def test_a_newcomer_whose_own_cap_is_used_up_founds_no_swarm(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=0.01, metering=CAP) as swarm:
        members = await begin(swarm, clock, "anna", "bert")
        used = Tally()
        day = members[0].parts.meter.tally.day.label
        used.turn(day, members[0].parts.meter.tally.month.label)
        used.add(0, int(SILENT * GB))
        (tmp_path / "emil").mkdir()
        (tmp_path / "emil" / "traffic.json").write_bytes(
            encode_tally(used, at=clock.wall(), unseen_bytes=0)
        )
        joining = asyncio.ensure_future(swarm.start("emil", clock=clock))
        await swarm.more_rounds(8, members)
        emil = swarm.members["emil"]
        assert emil.round == -1
        assert emil.parts.carriers.datagrams.bytes_sent == 0
        clock.wall_offset_s += DAY_S
        await joining
        await swarm.more_rounds(2)
        await check_equal(swarm)


@pytest.mark.timeout(180)
async def test_contributions_over_limited_links_are_agreed(tmp_path: Path):
    limited = {"max_upload_bytes_per_s": 32 * 1024}
    # A payload takes a second and a half to two peers: deadlines that are shorter part the swarm.
    patience = {
        "pull_stall_s": 10.0, "collect_deadline_s": 20.0,
        "ballot_deadline_s": 10.0, "confirm_deadline_s": 10.0,
    }  # fmt: skip
    async with Swarm(tmp_path, step_s=0.2, width=1024, metering=limited, rounds=patience) as swarm:
        members = await swarm.found("anna", "bert", "carl")
        await swarm.until(
            lambda: all(m.statistics.contributions_agreed >= 2 for m in members),
            within_s=120.0,
            what="everybody's part",
        )
        for member in members:
            limit = member.parts.meter.limit
            published = member.statistics.contributions_published
            assert limit.held_up_s > 0
            assert limit.num_bytes >= 2 * 24 * 1024 * (published - 1)
            # It is rare that what was sent is for nothing.
            assert 2 * member.statistics.contributions_agreed >= published - 2
        await check_equal(swarm)
