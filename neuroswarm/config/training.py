"""The settings of what is trained, and how: the model and its inner optimiser.

Refuses to know the other sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from neuroswarm.config.legality import OptimizerName, ScheduleName, check_schedule
from neuroswarm.config.model_shape import BUILT_IN, check_model, choose_num_heads
from neuroswarm.config.section import Section

BEST_LR: Mapping[OptimizerName, float] = {"adamw": 2e-3, "muon": 2.8e-3}
"""The best found for the built-in transformer in a swarm of four (docs/convergence.md)."""


class TrainingConfig(Section):
    """The model and its inner optimiser."""

    prefix = "training."

    lr: float | None = Field(default=None, gt=0, le=10)
    """Learning rate after the warm-up. Unset: 0.0028 with `muon`, 0.002 with `adamw`."""
    optimizer: OptimizerName | None = None
    """Inner optimiser: `adamw`, or `muon` for the matrices inside the model and AdamW for the
    rest. Unset: `muon` for the built-in `transformer`, `adamw` for all others and for adapters."""
    warmup_steps: int = Field(default=100, ge=0, le=1_000_000_000)
    """Inner steps, counted from round 0 on, over which the learning rate rises to `lr`."""
    lr_schedule: ScheduleName = "constant"
    """How the learning rate falls: not at all, as half a `cosine`, or straight in the last part
    (`wsd`: warm-up, stable, decay)."""
    schedule_rounds: int = Field(default=0, ge=0, le=1_000_000_000)
    """Rounds over which it falls; then it stays at its floor. 0: no end, and no fall."""
    decay_share: float = Field(default=0.2, gt=0, le=1)
    """Share of the rounds, at their end, in which `wsd` falls."""
    lr_floor: float = Field(default=0.1, ge=0, le=1)
    """What the learning rate falls to, as a share of `lr`."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Weight decay of matrices."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Gradient norm above which gradients are scaled down."""
    batch_size: int | None = Field(default=None, ge=1)
    """Windows of text per inner step. Unset: 128, 64, 32 or 8 by the class of the machine (server,
    desktop, laptop, rpi); with peers so many that everybody's steps take about the same time."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """What the model computes in; parameters stay float32. `auto`: bfloat16 where the hardware
    has it, the model is at least 512 wide, and it was measured to pay; else float32."""
    context: int = Field(default=128, ge=2)
    """Tokens per window; of text, bytes, unless the model has a vocabulary."""
    model: Annotated[str, AfterValidator(check_model)] = "transformer"
    """Which model: the built-in `transformer` or the recurrent `rwkv7`; `hf:FOLDER`, a Hugging Face
    causal model; or `module:factory`, a function of yours that makes one."""
    dim: int = Field(default=128, ge=8)
    """Width of a built-in model."""
    num_layers: int = Field(default=4, ge=1)
    """Blocks of a built-in model."""
    num_heads: int | None = Field(default=None, ge=1)
    """Heads of each block. Unset: 4 in a `transformer`, one for each 64 of `dim` in `rwkv7`."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the swarm: initial parameters of a new swarm, and who reads which text; alike at all
    members, or they read the same windows now and then."""
    eval_batches: int = Field(default=8, ge=1)
    """Batches of held-out text that each node measures after a round, its part of the swarm's."""

    @property
    def inner_optimizer(self) -> OptimizerName:
        """The inner optimiser: that set, or AdamW."""
        return self.optimizer or "adamw"

    @property
    def inner_lr(self) -> float:
        """Learning rate after the warm-up: that set, or the best found for the optimiser."""
        return BEST_LR[self.inner_optimizer] if self.lr is None else self.lr

    @property
    def heads(self) -> int:
        """Heads of each block of a built-in model: those set, or the model's default."""
        return choose_num_heads(self.model, self.dim, self.num_heads)

    @model_validator(mode="after")
    def _check_schedule_and_heads(self) -> Self:
        check_schedule(self.lr_schedule, self.schedule_rounds)
        if self.model in BUILT_IN:
            choose_num_heads(self.model, self.dim, self.num_heads)
        return self
