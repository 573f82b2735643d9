"""Fits a trainer to the machine before it trains: device, size of steps, pieces, precision.

Reads the machine; refuses to know peers.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from neuroswarm.config.sections import ResourceConfig
from neuroswarm.config.training import TrainingConfig
from neuroswarm.errors import ComputeError
from neuroswarm.hardware.capacity import MIB, Capacity, read_capacity
from neuroswarm.hardware.device_class import Accelerator
from neuroswarm.training.batching import DRAWS_PER_START, Batching
from neuroswarm.training.footprint import (
    BASE_BYTES,
    Footprint,
    choose_piece,
)
from neuroswarm.training.precision import choose_bf16
from neuroswarm.training.trainer import Trainer

logger = logging.getLogger(__name__)

_WRONG_FORWARD = (
    ArithmeticError, AssertionError, AttributeError, ComputeError, ImportError, LookupError,
    NameError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a model raises that does not fit its data."""

HELD_OUT_WINDOWS = 16
"""Of a held-out batch where the machine decides the size of steps: all peers measure one text."""


def look(resources: ResourceConfig, device: torch.device) -> Capacity:
    """What the machine can give a node that trains on a device; a few small files."""
    kind = {"cuda": Accelerator.CUDA, "mps": Accelerator.MPS}.get(device.type, Accelerator.NONE)
    limit = resources.available_memory_mb
    # The setting is for the whole process, of which the libraries are there already.
    limit_mb = None if limit is None else max(0, limit - BASE_BYTES // MIB)
    return read_capacity(limit_mb=limit_mb, accelerator=kind)


def count_draw(training: TrainingConfig, capacity: Capacity) -> int:
    """Windows of one draw from the data: those of a step, or a sixteenth of a first one."""
    return training.batch_size or max(1, capacity.start_windows // DRAWS_PER_START)


def make_batching(training: TrainingConfig, capacity: Capacity, *, is_fixed: bool) -> Batching:
    """The size of the first step.

    Args:
        training: The user's settings.
        capacity: The machine's.
        is_fixed: Whether the data's batches are the user's, so that a step is one of them.
    """
    if is_fixed or training.batch_size is not None:
        return Batching()
    num_draws = capacity.start_windows // count_draw(training, capacity)
    return Batching(num_draws=num_draws, piece=capacity.start_windows, is_fixed=False)


def fit_trainer(
    trainer: Trainer, training: TrainingConfig, capacity: Capacity, footprint: Footprint
) -> None:
    """Choose the precision, and pieces that memory bears; on the thread that owns the model.

    Cost: a forward pass of one window; tens of milliseconds more where bfloat16 is tried.
    """
    trainer.why_idle = footprint.explain()
    if trainer.why_idle:
        return
    device = trainer.device
    trainer.is_bf16 = choose_bf16(
        training.precision, trainer.model, device, has_bf16=capacity.processor.has_bf16
    )
    budget = _budget_on(device, footprint.budget_bytes)
    if budget is None or not trainer.has_data():
        return
    try:
        num_windows, window_bytes = trainer.measure_window()
    except _WRONG_FORWARD as error:
        logger.debug("not measured, the first step will say why: %s", error)
        return
    piece = choose_piece(num_windows, window_bytes, replace(footprint, budget_bytes=budget))
    if piece is not None:
        trainer.batching.piece = piece
        logger.info("%d windows at once: one takes %.1f MB", piece, window_bytes / 1e6)


def _budget_on(device: torch.device, budget: int | None) -> int | None:
    """Memory for the activations: an accelerator has its own."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return budget if device.type == "cpu" else None
