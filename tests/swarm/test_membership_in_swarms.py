"""Peers that die, leave, sleep, are copied, or have a wrong clock."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import torch

from neuroswarm.config.sections import RunConfig
from neuroswarm.identity.node_key import NodeKey
from neuroswarm.membership.peer_table import ALIVE_INTERVALS
from neuroswarm.node.renaming import take_new_identity
from neuroswarm.node.running import run_until
from neuroswarm.service import State
from neuroswarm.testing.member import Member
from neuroswarm.testing.shifted_clock import ShiftedClock
from neuroswarm.testing.swarm import SETTINGS, Swarm

NAMES = ("anna", "bert", "carl", "dora")
INTERVAL_S = SETTINGS["heartbeat"]["interval_s"]
LONG_ROUNDS = 0.2
DAY_S = 86_400.0
SLACK_S = 0.5
"""For a loaded machine: a tick of the driver and a late turn of the event loop."""


def is_elector(who: Member, at: Member) -> bool:
    return who.node_id in at.parts.rounds.driver.electorate.live


def last_heard(who: Member, at: Member) -> float:
    peer = at.parts.membership.peers.get(who.node_id)
    assert peer is not None
    return at.core.now() - peer.last_seen_s


def agreed_since(events: list[dict[str, object]], who: Member, round_: int) -> list[int]:
    """Rounds from `round_` on in which a node's contribution was agreed, by another's log."""
    me = who.node_id.hex()
    commits = [e for e in events if e["event"] == "commit" and me in e["signers"]]  # type: ignore[operator]
    return [e["round"] - 1 for e in commits if e["round"] > round_]  # type: ignore[operator,misc]


def was_agreed(who: Member, at: Member, round_: int) -> bool:
    """Whether a node's contribution was agreed in that round or one after it."""
    entries = at.parts.replica.state.applied.get(who.node_id, ())
    return any(agreed_in >= round_ for agreed_in, _ in entries)


async def failure_of(member: Member) -> str:
    """What kind of error ended a node."""
    try:
        await member.core.wait_closed()
    except ExceptionGroup as errors:
        return ", ".join(type(error).__name__ for error in errors.exceptions)
    return "none"


async def assert_one_lineage(swarm: Swarm) -> None:
    digests = await swarm.digests()
    assert digests
    assert all(len(found) == 1 for found in digests.values()), digests
    assert sum(m.parts.rounds.intake.counters["equivocators"] for m in swarm.running) == 0


async def test_a_killed_peer_is_expected_for_three_intervals_at_most(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        *others, dora = await swarm.found(*NAMES)
        await swarm.until_round(2)
        await swarm.until(lambda: all(is_elector(dora, m) for m in others), what="dora's part")
        swarm.cut_power(dora)
        ages: dict[str, float] = {}

        def all_let_go() -> bool:
            for member in others:
                if member.name not in ages and not is_elector(dora, member):
                    ages[member.name] = last_heard(dora, member)
            return len(ages) == len(others)

        await swarm.until(all_let_go, what="dora to be given up")
        limit_s = ALIVE_INTERVALS * INTERVAL_S
        assert all(age <= limit_s + SLACK_S for age in ages.values()), ages
        await swarm.more_rounds(1, others)
        began = time.monotonic()
        await swarm.more_rounds(1, others)
        collect_s = SETTINGS["rounds"]["collect_deadline_s"]
        assert time.monotonic() - began < collect_s + 1.0, "nobody waits for the dead"


async def test_a_leaving_peer_is_expected_no_longer_and_others_are_told(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS, heartbeat={"interval_s": 30.0}) as swarm:
        *others, dora = await swarm.found(*NAMES)
        await swarm.until_round(1)
        await swarm.until(lambda: all(is_elector(dora, m) for m in others), what="dora's part")
        told: list[str] = []
        for member in others:
            name = member.name
            member.parts.rounds.crowd.on_leaving(
                lambda node_id, name=name: told.append(f"{name} of {node_id}")  # type: ignore[misc]
            )
        await dora.core.stop()
        await swarm.until(lambda: not any(is_elector(dora, m) for m in others), within_s=15.0)
        assert sorted(told) == [f"{member.name} of {dora.node_id}" for member in others]
        await swarm.more_rounds(1, others)


async def sleep_through_rounds(swarm: Swarm, sleeper: Member, others: list[Member]) -> int:
    """Cut a node off while the others go on, and join it again; their round then."""
    cut = swarm.network.partition([sleeper.node_id], [member.node_id for member in others])
    before = sleeper.round
    await swarm.more_rounds(3, others)
    swarm.network.heal()
    assert cut.fired > 0
    assert sleeper.round <= before + 1
    return max(member.round for member in others)


async def test_a_node_that_stood_still_listens_catches_up_and_contributes(tmp_path: Path):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        others = await swarm.found(*NAMES[:3])
        (dora,) = await swarm.start("dora", clock=clock)
        await swarm.until(lambda: all(is_elector(dora, m) for m in others), what="dora's part")
        known = {peer.node_id for peer in dora.parts.rounds.crowd.live()}
        clock.stop(3600.0)
        assert not dora.core.is_voting, "it listens before anything is done about deadlines"
        assert {peer.node_id for peer in dora.parts.rounds.crowd.live()} == known
        came_back = max(member.round for member in others)
        await swarm.until_round(came_back + 3)
        await swarm.until_level()
        rounds = agreed_since(await others[0].events(), dora, came_back)
        assert any(round_ <= came_back + 2 for round_ in rounds), (came_back, rounds)
        assert dora.core.vigil.num_gaps == 1
        assert dora.statistics.repairs == 0
        await assert_one_lineage(swarm)


async def test_a_suspended_node_that_missed_rounds_is_level_again(tmp_path: Path, caplog):
    clock = ShiftedClock()
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        others = await swarm.found(*NAMES[:3])
        (dora,) = await swarm.start("dora", clock=clock, trains=False)
        await swarm.until_level()
        came_back = await sleep_through_rounds(swarm, dora, others)
        clock.suspend(900.0)
        dora.begin_training()
        await swarm.until(
            lambda: dora.node_id in others[0].parts.replica.state.applied, what="dora's part"
        )
        await swarm.until_level()
        assert dora.round > came_back
        assert "was suspended for 900 s: catching up" in caplog.text
        assert dora.statistics.repairs == 0
        await assert_one_lineage(swarm)


async def test_clocks_that_are_wrong_by_days_do_not_matter(tmp_path: Path, caplog):
    ahead, in_1970 = ShiftedClock(wall_offset_s=3 * DAY_S), ShiftedClock(wall_offset_s=-time.time())
    async with Swarm(tmp_path) as swarm:
        anna, bert = await swarm.start("anna", "bert", trains=False)
        (carl,) = await swarm.start("carl", trains=False, clock=ahead)
        (dora,) = await swarm.start("dora", trains=False, clock=in_1970)
        await swarm.train_together([anna, bert, carl, dora])

        def is_everyones() -> bool:
            everyone = {member.node_id for member in swarm.running}
            return all(everyone <= set(m.parts.replica.state.applied) for m in swarm.running)

        await swarm.until(is_everyones, what="contributions of all")
        await swarm.until_round(4)
        await swarm.until_level()
        await assert_one_lineage(swarm)
        offsets = {m.name: m.parts.reporter.status()["clock_offset_s"] for m in swarm.running}
        assert abs(offsets["anna"]) < 60
        assert abs(offsets["carl"] + 3 * DAY_S) < 60
        assert offsets["dora"] > 50 * 365 * DAY_S
        (again,) = await swarm.restart(dora)
        await swarm.more_rounds(2)
        assert again.node_id in anna.parts.replica.state.applied
        told = [r.getMessage() for r in caplog.records if "this machine's clock is" in r.msg]
        assert any("before the swarm's" in line for line in told)
        assert any("behind the swarm's" in line for line in told)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a node's state folder as it is now; what goes meanwhile is not in the copy."""

    def copy_if_there(name: str, to: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(name, to)
        return to

    ignored = shutil.ignore_patterns("lock", ".tmp-*")
    shutil.copytree(source, target, ignore=ignored, copy_function=copy_if_there)


async def test_a_copied_node_steps_back_and_goes_on_as_a_new_peer(tmp_path: Path, caplog):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        *others, dora = await swarm.found(*NAMES)
        await swarm.until_round(2)
        await dora.parts.recorder.drained()
        copy_folder(dora.folder, tmp_path / "copy")
        (copy,) = await swarm.start("copy")
        assert copy.node_id == dora.node_id
        del swarm.members["copy"]  # that it fails is what is wanted
        await swarm.until(lambda: copy.core.state is State.FAILED, what="the copy to step back")
        assert dora.core.state is State.RUNNING
        await swarm.more_rounds(2)
        await assert_one_lineage(swarm)
        assert copy.statistics.contributions_published == 0
        assert await failure_of(copy) == "ClonedIdentity"
        level = max(member.round for member in others)
        await swarm.until(lambda: is_elector(dora, others[0]), what="the original's part")
        await take_new_identity(copy.core)
        assert (copy.folder / "identity.key.cloned-1").exists()
        new = NodeKey.load_or_create(copy.folder / "identity.key")
        assert new.node_id != dora.node_id
        (renamed,) = await swarm.start("copy", trains=False)
        assert renamed.node_id == new.node_id
        state = renamed.parts.replica.state.params
        local = renamed.parts.trainer.local()
        assert all(map(torch.equal, state, local)), "no progress of the original's a second time"
        assert "progress that was not agreed is left to that node" in caplog.text
        renamed.begin_training()
        await swarm.until(
            lambda: {dora.node_id, renamed.node_id} <= set(others[0].parts.replica.state.applied),
            what="contributions of both",
        )
        await swarm.until_level()
        events = await others[0].events()
        assert agreed_since(events, dora, level)
        await assert_one_lineage(swarm)


async def test_a_copy_that_is_started_at_the_same_time_leaves_one_of_the_two(tmp_path: Path):
    async with Swarm(tmp_path, step_s=LONG_ROUNDS) as swarm:
        *others, dora = await swarm.found(*NAMES)
        await swarm.until_round(1)
        await swarm.bury(dora)
        copy_folder(dora.folder, tmp_path / "copy")
        one, two = winner, _ = await swarm.start("dora", "copy")
        for name in ("dora", "copy"):
            del swarm.members[name]
        try:
            await swarm.until(
                lambda: State.FAILED in (one.core.state, two.core.state), what="one to step back"
            )
            winner = one if two.core.state is State.FAILED else two
            level = max(member.round for member in others)
            await swarm.until(lambda: was_agreed(winner, others[0], level), what="its part")
            assert winner.core.state is State.RUNNING
            await assert_one_lineage(swarm)
        finally:
            loser = two if winner is one else one
            assert await failure_of(loser) == "ClonedIdentity"
            await one.core.stop()
            await two.core.stop()


async def test_a_node_that_does_not_train_ends_after_so_many_rounds_of_others(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        await swarm.found(*NAMES[:2])
        (olga,) = await swarm.start("olga", trains=False)
        began = olga.round
        assert await run_until(olga.core, RunConfig(rounds=2), trains=False) == "2 rounds"
        assert olga.round >= began + 2
        assert olga.statistics.contributions_published == 0
