"""Slow peers skip rounds, keep what they computed, and hold nobody up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from neuroswarm.node.replica import Draft
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import Swarm
from neuroswarm.training.compute import Rested
from neuroswarm.training.trainer import StepReport

STEP_S = 0.005
INNER_STEPS = 32
PACE = {"diloco": {"inner_steps": INNER_STEPS, "inner_steps_max": 2 * INNER_STEPS}}


@dataclass
class Books:
    """What a member really computed and published, written down beside it."""

    member: Member
    progress: list[Tensor] = field(default_factory=list)
    coded: dict[str, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        replica, trainer = self.member.parts.replica, self.member.parts.trainer
        take_step, remember = replica.solo.step, replica.remember
        self.progress = [torch.zeros_like(part, dtype=torch.float64) for part in trainer.local()]

        def step() -> StepReport | Rested:
            before = trainer.local()
            report = take_step()
            for total, old, new in zip(self.progress, before, trainer.local(), strict=True):
                total += old.double() - new.double()
            return report

        def note(contribution: bytes, draft: Draft) -> None:
            self.coded[contribution.hex()] = [payload.decode() for payload in draft.payloads]
            remember(contribution, draft)

        replica.solo.step = step  # type: ignore[method-assign]
        replica.remember = note  # type: ignore[method-assign]

    async def missing(self, agreed: set[str]) -> float:
        """How far the law of the books is from holding, beside the size of what was computed."""
        parts = self.member.parts

        def look() -> float:
            state, local = parts.replica.state, parts.trainer.local()
            residual = parts.replica._books.residual
            furthest = 0.0
            for k, total in enumerate(self.progress):
                found = state.params[k].double() - local[k].double() + residual[k].double()
                for contribution in agreed & self.coded.keys():
                    found += self.coded[contribution][k].double()
                furthest = max(furthest, float((found - total).abs().max()))
            return furthest / max(float(total.abs().max()) for total in self.progress)

        return await parts.compute.run(look)


@pytest.mark.parametrize(("times_slower", "wanted"), [(4, 3), (16, 2), (60, 1)])
async def test_a_slow_peer_skips_rounds_and_loses_nothing(
    tmp_path: Path, times_slower: int, wanted: int
):
    async with Swarm(tmp_path, step_s=STEP_S, **PACE) as swarm:
        *fast, slow = await swarm.start("anna", "bert", "carl", "slow", trains=False)
        slow.step_s = STEP_S * times_slower
        books = Books(slow)
        await swarm.train_together([*fast, slow])
        await swarm.until(
            lambda: slow.statistics.contributions_agreed >= wanted, what="slow's part"
        )
        slow.parts.compute.pause_training()
        fast[0].parts.compute.pause_training()
        await swarm.until_level()
        events = [e for e in await fast[0].events() if e["event"] == "commit"]
        agreed = {c for e in events for c in e["contributions"]}
        assert await books.missing(agreed) < 1e-4
        of_slow = [e for e in events if slow.node_id.hex() in e["signers"]]
        assert len(of_slow) >= wanted
        if times_slower >= 16:
            # The others went on without it.
            assert len(events) > slow.parts.trainer.total.steps / INNER_STEPS
            assert len(of_slow) < len(events)
        assert all(len(found) == 1 for found in (await swarm.digests()).values())
