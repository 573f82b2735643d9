"""The settings of low-rank adapters.

Knows nothing of models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from neuroswarm.config.section import Section, split_list


class LoraConfig(Section):
    """Train low-rank adapters beside a frozen base, instead of the model; for all nodes alike."""

    prefix = "lora."

    rank: int = Field(default=0, ge=0, le=4096)
    """Rank of the adapters; 0 trains the whole model."""
    alpha: float | None = Field(default=None, gt=0, le=1e6)
    """What an adapter adds counts alpha / rank times. Unset: twice the rank."""
    targets: tuple[str, ...] = ()
    """Layers to adapt, by their names or the ends of them (`att.key`), with `*` and `?`; one
    string may hold several, with commas between them. Unset: all linear layers but the head."""
    train_a: bool = False
    """Train and send A besides B. Off: A follows from `training.seed`, the same on all nodes, and
    stays; half of the bytes, and means of B are exact."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the adapters' inputs left out in a step; a node's own choice."""
    base: Path | None = None
    """Weights of the built-in model, to adapt: a safetensors file, or a folder with such files.
    Every node has its own copy; only its hash is compared."""

    @field_validator("targets", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return split_list(value)

    @property
    def scale_alpha(self) -> float:
        """Alpha: the one set, or twice the rank."""
        return 2.0 * self.rank if self.alpha is None else self.alpha

    @model_validator(mode="after")
    def _base_has_adapters(self) -> Self:
        if self.base is not None and not self.rank:
            raise ValueError("base without rank: give the adapters' rank too (lora.rank=8)")
        for name in ("alpha", "targets", "dropout"):
            if not self.rank and getattr(self, name):
                raise ValueError(f"{name} without rank trains no adapters (set lora.rank=8 too)")
        return self
