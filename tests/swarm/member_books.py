"""The books of one member of a swarm, kept beside it: what it computed and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from neuroswarm.node.draft import Draft
from neuroswarm.testing.member import Member
from neuroswarm.training.compute import Rested
from neuroswarm.training.trainer import StepReport


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
