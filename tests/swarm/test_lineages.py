"""Which lineage a swarm ends on, and that nothing of the others is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from neuroswarm.checkpoint.outer_files import OuterFiles
from neuroswarm.diloco.state import OuterState
from neuroswarm.rounds import deference
from neuroswarm.rounds.history import FinishedRound, History
from neuroswarm.rounds.phases import Phase
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import INNER_STEPS, Swarm
from neuroswarm.wire.messages import Confirm, Contribution, FragmentPayload
from neuroswarm.wire.signed import Kind, sign

NAMES = ("anna", "bert", "carl")


def left_behind(member: Member) -> set[bytes]:
    """Digests of the outer states that a node has given up and kept, all of them whole."""
    files = OuterFiles(member.folder / "left-behind")
    return {files.load(file)[0].digest for file in files.files()}


async def test_one_alone_gives_way_to_two_however_far_ahead_it_is_and_keeps_its_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl = await swarm.found(*NAMES)
        await swarm.until_round(1)
        cut = swarm.network.partition([carl.node_id], [anna.node_id, bert.node_id])
        for member in (anna, bert):
            member.step_s = 0.1
        await swarm.more_rounds(2)
        fork = max(anna.round, bert.round)
        await swarm.until(lambda: carl.round >= fork + 6, what="carl to be far ahead")
        given_up = carl.round
        assert given_up > max(anna.round, bert.round)
        swarm.network.heal()
        await swarm.until(lambda: carl.statistics.repairs > 0, what="carl's repair")
        await swarm.more_rounds(2)
        await swarm.until_level()
        assert [anna.statistics.repairs, bert.statistics.repairs] == [0, 0]
        assert all(len(found) == 1 for found in (await swarm.digests()).values())
        (repair, *_) = [e for e in await carl.events() if e.get("is_repair")]
        assert repair["left_round"] >= given_up
        assert bytes.fromhex(repair["left_digest"]) in left_behind(carl)
        assert f"state left behind in round {repair['left_round']} kept in" in caplog.text
        assert cut.fired > 0


async def test_of_a_swarm_parted_in_halves_the_losers_keep_their_states(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        members = await swarm.found("anna", "bert", "carl", "dora")
        ids = [member.node_id for member in members]
        await swarm.until_round(1)
        cut = swarm.network.partition(ids[:2], ids[2:])
        await swarm.more_rounds(3)
        swarm.network.heal()
        await swarm.until(lambda: sum(m.statistics.repairs for m in members) >= 2, what="repairs")
        await swarm.until_level()
        losers = [member for member in members if member.statistics.repairs]
        assert cut.fired > 0
        assert losers
        for loser in losers:
            left = {e["left_digest"] for e in await loser.events() if e.get("is_repair")}
            assert {bytes.fromhex(digest) for digest in left} <= left_behind(loser)


async def test_a_contribution_to_another_base_counts_nowhere(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        members = await swarm.found(*NAMES)
        await swarm.until_round(1)
        anna, *others = members
        wrong = misdirected(anna)
        for member in others:
            # As if it had come by gossip from anna.
            member.parts.rounds.intake.on_statement(*wrong, anna.node_id)
        await swarm.more_rounds(2)
        await swarm.until_level()
        agreed = {
            contribution
            for event in await others[0].events()
            if event["event"] == "commit"
            for contribution in event["contributions"]
        }
        assert agreed
        assert wrong[0].id.hex() not in agreed
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
        equivocators = [m.parts.rounds.intake.counters["equivocators"] for m in others]
        assert equivocators == [0, 0], "two bases are two rounds"


def misdirected(who: Member):
    """A contribution of that member to a base that nobody has."""
    state, crowd = who.parts.replica.state, who.parts.rounds.crowd
    header = Contribution(
        swarm_id=crowd.swarm_id,
        round=state.round,
        base_digest=bytes(32),
        architecture=state.architecture,
        codec=state.rules.codec,
        inner_steps=4,
        tokens=64,
        loss=1.0,
        fragments=(FragmentPayload(0, bytes(32), 1),),
    )
    return sign(Kind.CONTRIBUTION, header.encode(), who.key), header


@pytest.mark.parametrize("far", [40, 2**52])
async def test_one_member_with_a_lineage_of_its_own_leads_nobody_away(tmp_path: Path, far: int):
    """Not a newcomer either, that has no finished round to compare it with."""
    async with Swarm(tmp_path, step_s=0.1) as swarm:
        honest = await swarm.found(*NAMES)
        (mallory,) = await swarm.start("mallory", trains=False)
        await swarm.until_round(1, honest)
        await mallory.parts.rounds.driver.stop()
        claim_lineage(mallory, far)
        (dora,) = await swarm.start("dora")
        everyone = [*honest, dora]
        await swarm.more_rounds(3, everyone)
        await swarm.until_level(everyone)
        assert dora.round < 40
        assert [m.statistics.repairs for m in everyone] == [0] * 4
        assert mallory.round == far


def claim_lineage(who: Member, round_: int) -> None:
    """Let a member stand on a state of its own making, in a round confirmed by itself."""
    replica, rounds = who.parts.replica, who.parts.rounds
    states = [made_up(replica.state, r) for r in (round_ - 1, round_)]
    before, after = states
    about = Confirm(rounds.crowd.swarm_id, before.round, before.digest, ()).encode()
    confirm = sign(Kind.CONFIRM, about, who.key)
    history = History(before.round, before.digest)
    history.append(FinishedRound(before.round, before.digest, after.digest, (), (confirm,)))
    rounds.intake.history = history
    replica._states = type(replica._states)([after, before])
    who.parts.membership.heartbeat.announce_now()


def made_up(state: OuterState, round_: int) -> OuterState:
    fragments = tuple(
        replace(f, params=torch.full_like(f.params, 0.666), momentum=torch.zeros_like(f.momentum))
        for f in state.fragments
    )
    return OuterState(round_, fragments, {}, state.rules, state.architecture)


async def test_who_finds_slowly_that_others_win_goes_over_though_its_own_rounds_go_on(
    tmp_path: Path,
):
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl = await swarm.found(*NAMES)
        await swarm.until_round(1)
        swarm.network.partition([carl.node_id], [anna.node_id, bert.node_id])
        fork = max(anna.round, bert.round)
        await swarm.until(lambda: carl.round >= fork + 6, what="carl to be ahead")
        swarm.network.heal()
        questions = ("Gossip/Result", "Gossip/Lineage")
        slow = [swarm.network.delay(1.4, carl.node_id, method=asked) for asked in questions]
        await swarm.until(lambda: carl.statistics.repairs > 0, what="carl's repair")
        assert all(fault.fired > 0 for fault in slow)
        for fault in slow:
            swarm.network.remove(fault)
        await swarm.until_level()


async def test_who_hears_most_others_elsewhere_finishes_no_round_until_it_is_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(deference, "MAX_DEFERENCE_S", 100.0)  # longer than this test waits
    async with Swarm(tmp_path) as swarm:
        anna, bert, carl = await swarm.found(*NAMES)
        await swarm.until_round(1)
        swarm.network.partition([carl.node_id], [anna.node_id, bert.node_id])
        fork = max(anna.round, bert.round)
        await swarm.until(lambda: carl.round >= fork + 3, what="carl to be apart")
        questions = ("Gossip/Result", "Gossip/Lineage")
        lost = [swarm.network.drop(carl.node_id, method=asked) for asked in questions]
        swarm.network.heal()
        driver = carl.parts.rounds.driver
        await swarm.until(
            lambda: driver.is_deferring and driver.phase is Phase.TRAINING, what="carl to defer"
        )
        stayed_at = carl.round
        await swarm.until(
            lambda: carl.parts.replica.inner_steps > INNER_STEPS, what="more steps than a round's"
        )
        await swarm.more_rounds(3, [anna, bert])
        assert carl.round == stayed_at
        assert carl.statistics.repairs == 0
        assert all(fault.fired > 0 for fault in lost)
        for fault in lost:
            swarm.network.remove(fault)
        await swarm.until(lambda: carl.statistics.repairs > 0, what="carl's repair")
        await swarm.more_rounds(1)
        await swarm.until_level()
