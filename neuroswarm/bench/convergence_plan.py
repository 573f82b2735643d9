"""Which runs the convergence benchmark makes: arms by seeds, at one of two sizes.

One line an arm: to measure another schedule, add one. Refuses to know how a run is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from neuroswarm.bench.task import Task
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ConfigError

NUM_PEERS = 4
REPORTED_SEEDS = (11, 12, 13)
"""Seed 1 was used to choose the arms' learning rates and schedules; it is not reported."""

Kind = Literal["alone", "synchronous", "swarm"]
Stage = Literal["quick", "full", "search"]


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to train, with the learning rate that suits it best.

    Args:
        name: In tables and flags.
        kind: One peer by itself; four that average gradients at every step; or the swarm.
        rules: Fields of `Rules` that differ from their defaults. `inner_steps` is H.
        stage: The smallest benchmark that has it; `search` is everything that was tried.
    """

    name: str
    kind: Kind
    rules: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage = "search"


@dataclass(frozen=True, slots=True)
class Job:
    """One run. `task` gives sizes; the number of rounds follows from steps and rules."""

    arm: str
    kind: Kind
    seed: int
    steps: int
    """Inner steps of each peer."""
    task: Task
    rules: Rules

    def __str__(self) -> str:
        return f"{self.arm}, {self.steps} steps, seed {self.seed}"

    @property
    def round_lengths(self) -> list[int]:
        """Inner steps of each round of a swarm; the last may be shorter."""
        whole, rest = divmod(self.steps, self.rules.inner_steps)
        return [self.rules.inner_steps] * whole + ([rest] if rest else [])


@dataclass(frozen=True, slots=True)
class Size:
    """A model and how long it is trained."""

    task: Task
    steps: int


QUICK = Size(
    Task(dim=128, num_layers=2, num_heads=4, context=64, batch_size=8,
         eval_batches=12, eval_batch_size=64),
    steps=832,
)  # fmt: skip
FULL = Size(
    Task(dim=176, num_layers=3, num_heads=4, context=64, batch_size=8,
         eval_batches=16, eval_batch_size=64),
    steps=832,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user asked for."""

    seeds: Sequence[int] = REPORTED_SEEDS
    arms: Sequence[str] = ()
    """Empty: those of the stage."""
    is_quick: bool = False
    """The small model, and of the arms the quick ones."""
    is_search: bool = False
    """All arms, whatever the model."""
    steps: int | None = None
    """Instead of the size's."""
    times_lr: float = 1.0
    """Factor of every arm's learning rate, to see whether the arm's is the best one."""

    @property
    def size(self) -> Size:
        """Model and length of the runs."""
        size = QUICK if self.is_quick else FULL
        return size if self.steps is None else dataclasses.replace(size, steps=self.steps)


def plan(selection: Selection, arms: Iterable[Arm]) -> list[Job]:
    """Every run that a selection needs, the longest first.

    Raises:
        ConfigError: An arm of that name does not exist.
    """
    arms = list(arms)
    names = [arm.name for arm in arms]
    for name in selection.arms:
        if name not in names:
            raise ConfigError(f"unknown arm: {name!r} (one of {', '.join(names)})")
    if selection.arms:
        wanted = [arm for arm in arms if arm.name in selection.arms]
    elif selection.is_search:
        wanted = arms
    else:
        stages = ("quick",) if selection.is_quick else ("quick", "full")
        wanted = [arm for arm in arms if arm.stage in stages]
    jobs = [_job(arm, seed, selection) for arm in wanted for seed in selection.seeds]
    return sorted(jobs, key=lambda job: job.kind == "alone")


def _job(arm: Arm, seed: int, selection: Selection) -> Job:
    size = selection.size
    given = dict(arm.rules)
    if arm.kind != "swarm":
        given["inner_steps"] = size.steps
    given["schedule_rounds"] = -(-size.steps // given["inner_steps"])
    rules = Rules.model_validate(given)
    paced = rules.model_copy(update={"inner_lr": rules.inner_lr * selection.times_lr})
    return Job(arm.name, arm.kind, seed, size.steps, size.task, paced)
