"""bfloat16 only where it is there, worth measuring, and measured to pay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuroswarm.training.precision import (
    MIN_GAIN,
    MIN_WIDTH,
    Precision,
    casting,
    choose_bf16,
    measure_gain,
)

CPU = torch.device("cpu")
WIDE, NARROW = nn.Linear(MIN_WIDTH, MIN_WIDTH), nn.Linear(MIN_WIDTH, MIN_WIDTH - 1)


@pytest.mark.parametrize(
    ("wanted", "model", "has_bf16", "gain", "is_on"),
    [
        ("auto", WIDE, True, MIN_GAIN, True),
        ("auto", WIDE, True, MIN_GAIN - 0.1, False),
        ("auto", WIDE, False, 10.0, False),
        ("auto", NARROW, True, 10.0, False),
        ("fp32", WIDE, True, 10.0, False),
        ("bf16", NARROW, False, 0.1, True),
    ],
)
def test_when_to_compute_in_bfloat16(
    wanted: Precision, model: nn.Module, has_bf16: bool, gain: float, is_on: bool
):
    asked: list[int] = []

    def measure(_device: torch.device, width: int) -> float:
        asked.append(width)
        return gain

    assert choose_bf16(wanted, model, CPU, has_bf16=has_bf16, measure=measure) is is_on
    assert bool(asked) == (wanted == "auto" and has_bf16 and model is WIDE)


def test_the_gain_is_measured():
    assert 0.01 < measure_gain(CPU, 64) < 1000


def test_casting_leaves_parameters_and_gradients_in_float32():
    model = nn.Linear(8, 8)
    with casting(CPU, is_on=True):
        result = model(torch.ones(2, 8))
    assert result.dtype == torch.bfloat16
    result.sum().backward()
    assert model.weight.grad is not None
    assert model.weight.dtype == model.weight.grad.dtype == torch.float32
    with casting(CPU, is_on=False):
        assert model(torch.ones(2, 8)).dtype == torch.float32
