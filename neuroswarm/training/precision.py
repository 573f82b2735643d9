"""Whether to compute in bfloat16, and how.

Only where the processor or accelerator multiplies such matrices itself, the model is wide enough,
and it was measured to pay. Parameters, gradients and the optimiser stay in float32.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

Precision = Literal["auto", "fp32", "bf16"]

MIN_WIDTH = 512
"""Narrower layers lose by the conversions what they win."""

MIN_GAIN = 1.3
"""Times faster that multiplications must be: what is around them gains nothing."""

_ROWS = 1024
_REPEATS = 5


def casting(device: torch.device, *, is_on: bool) -> contextlib.AbstractContextManager[object]:
    """A context in which the model computes in bfloat16; one that does nothing if it is off."""
    return torch.autocast(device.type, torch.bfloat16) if is_on else contextlib.nullcontext()


def choose_bf16(
    wanted: Precision,
    model: nn.Module,
    device: torch.device,
    *,
    has_bf16: bool,
    measure: Callable[[torch.device, int], float] | None = None,
) -> bool:
    """Whether a model should compute in bfloat16 on a device.

    Args:
        wanted: What the user wants.
        model: Its widest matrix decides whether it is worth measuring.
        device: Where it computes.
        has_bf16: Whether the processor has instructions for it; accelerators are asked.
        measure: Device and width -> how many times faster multiplications are; None: measure it.

    Cost: measuring takes some tens of milliseconds.
    """
    if wanted != "auto":
        return wanted == "bf16"
    width = max((min(p.shape) for p in model.parameters() if p.dim() == 2), default=0)
    is_able = has_bf16 if device.type == "cpu" else _accelerator_has_bf16(device)
    if not is_able or width < MIN_WIDTH:
        return False
    return (measure or measure_gain)(device, width) >= MIN_GAIN


def measure_gain(device: torch.device, width: int) -> float:
    """How many times faster this device multiplies square matrices in bfloat16 than in float32."""
    seconds = [_time_product(device, width, dtype) for dtype in (torch.float32, torch.bfloat16)]
    return seconds[0] / max(seconds[1], 1e-9)


def _time_product(device: torch.device, width: int, dtype: torch.dtype) -> float:
    """The least seconds of some products of [1024, width] and [width, width]."""
    left = torch.ones(_ROWS, width, dtype=dtype, device=device)
    right = torch.ones(width, width, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        (left @ right)[0, 0].item()  # waits for accelerators
        best = min(best, time.perf_counter() - began)
    return best


def _accelerator_has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return False  # MPS has it from some versions of its system on; nothing tells which
