"""A node alone computes the same bits, however often it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroswarm.errors import CheckpointError
from neuroswarm.rounds.phases import Phase
from neuroswarm.testing.swarm import Swarm

ROUNDS = 10
FALLING = {
    "optimizer": "muon",
    "warmup_steps": 6,
    "lr_schedule": "cosine",
    "schedule_rounds": ROUNDS,
}
OFTEN = {"checkpoint": {"interval_s": 0.05, "max_checkpoints": 3}}


@pytest.mark.parametrize("training", [{}, FALLING], ids=["adamw", "muon"])
async def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    tmp_path: Path, training: dict[str, Any]
):
    async with Swarm(tmp_path / "whole", step_s=0.02, training=training, **OFTEN) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(ROUNDS)
        whole = await anna.digests()
    async with Swarm(tmp_path / "killed", step_s=0.02, training=training, **OFTEN) as swarm:
        (anna,) = await swarm.start("anna")
        killed_in = []
        for round_ in range(1, ROUNDS, 2):
            # In the middle of a round, and as soon as a round is over, in turns.
            wanted_steps = 2 if round_ % 4 == 1 else 0
            await swarm.until(
                lambda: anna.round >= round_ and anna.parts.replica.inner_steps >= wanted_steps,  # noqa: B023
                what="the moment to kill",
            )
            killed_in.append((anna.round, anna.parts.rounds.driver.phase))
            (anna,) = await swarm.restart(anna)
        await swarm.until_round(ROUNDS)
        resumed = await anna.digests()
    assert len(killed_in) == ROUNDS // 2
    shared = set(whole) & set(resumed)
    assert {ROUNDS - 1, ROUNDS} <= shared
    assert {r: whole[r] for r in shared} == {r: resumed[r] for r in shared}, killed_in


async def test_a_node_killed_between_publishing_and_its_checkpoint_comes_to_the_same_bits(
    tmp_path: Path,
):
    async with Swarm(tmp_path / "whole", step_s=0.01) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(5)
        whole = await anna.digests()
    async with Swarm(tmp_path / "killed", step_s=0.01) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(2)
        await anna.parts.recorder.drained()
        saved = anna.round
        # Nothing is checkpointed from now on, while what is said goes to the disk.
        checkpoints = anna.folder / "checkpoints"
        checkpoints.rename(tmp_path / "aside")
        checkpoints.touch()  # a folder that is missing would be made again
        await swarm.until_round(saved + 1)
        await swarm.until(
            lambda: anna.statistics.contributions_published > saved, what="a publication"
        )
        await swarm.bury(anna)
        assert not checkpoints.read_bytes()
        checkpoints.unlink()
        (tmp_path / "aside").rename(checkpoints)
        (anna,) = await swarm.restart(anna)
        assert anna.first_round <= saved
        await swarm.until_round(5)
        resumed = await anna.digests()
    shared = set(whole) & set(resumed)
    assert {4, 5} <= shared
    assert {r: whole[r] for r in shared} == {r: resumed[r] for r in shared}


async def test_inner_steps_stop_at_the_end_of_a_lone_round_and_go_on_with_peers(tmp_path: Path):
    async with Swarm(tmp_path) as swarm:
        (anna,) = await swarm.start("anna")
        await swarm.until_round(3)
        assert anna.parts.replica.solo.hold_at == 4
        (bert,) = await swarm.start("bert")
        await swarm.until(
            lambda: all(m.parts.replica.solo.hold_at is None for m in (anna, bert)),
            what="nobody to be held",
        )
        assert anna.parts.rounds.driver.phase in set(Phase)
        events = [e for e in await anna.events() if e["event"] == "commit"]
        assert all(e["signers"] == [anna.node_id.hex()] for e in events[:3])


async def test_a_node_whose_checkpoints_cannot_be_read_starts_no_swarm_in_their_place(
    tmp_path: Path,
):
    async with Swarm(tmp_path, step_s=0.01) as swarm:
        anna, bert = await swarm.found("anna", "bert")
        await swarm.until_round(3)
        await swarm.bury(anna, bert)
        for file in (anna.folder / "checkpoints").rglob("*.safetensors"):
            file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(CheckpointError, match="no other swarm is started in its place"):
            await swarm.restart(anna)
        await swarm.bury(anna)
        await swarm.restart(bert)
        (again,) = await swarm.restart(anna)
        assert again.first_round >= 2, "bert has it"
