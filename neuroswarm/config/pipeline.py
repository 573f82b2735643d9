"""The settings of nodes that host a span of the model.

Refuses to know the other sections.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from neuroswarm.config.section import Section


class BufferConfig(Section):
    """Bounds of the activation buffers of nodes that host a span of the model."""

    prefix = "buffers."

    inbound_size: int = Field(default=100, ge=1)
    """Activation packets that may wait for this node."""
    outbound_size: int = Field(default=50, ge=1)
    """Activation packets that may wait to be sent."""
    soft_overflow_threshold: float = Field(default=0.9, gt=0, le=1)
    """Fill above which low-priority packets wait and back-pressure is advertised."""
    hard_overflow_threshold: float = Field(default=0.99, gt=0, le=1)
    """Fill above which packets are refused."""

    @model_validator(mode="after")
    def _soft_below_hard(self) -> Self:
        soft, hard = self.soft_overflow_threshold, self.hard_overflow_threshold
        if soft > hard:
            raise ValueError(
                f"soft_overflow_threshold {soft} is above hard_overflow_threshold {hard}"
            )
        return self


class PipelineConfig(Section):
    """How activations travel between nodes that host spans of the model."""

    prefix = "pipeline."

    ack_timeout_ms: int = Field(default=200, ge=1)
    """Milliseconds to wait for "queued" before the next candidate is tried."""
    k_candidates: int = Field(default=3, ge=1)
    """Candidates kept for every layer."""
    num_micro_batches: int = Field(default=4, ge=1)
    """Pieces that a batch is cut into."""
