"""The two forms of the recurrence of RWKV-7 compute the same, and have the same gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from neuroswarm.models.wkv7 import MIN_LOG_DECAY, Wkv, wkv_by_steps, wkv_in_chunks

LENGTHS = st.one_of(st.sampled_from([1, 31, 32, 33, 64, 65]), st.integers(1, 130))
DECAYS = st.sampled_from(["least", "most", "both", "any"])
KEYS = st.sampled_from(["any", "one"])
SIZES = st.sampled_from([2, 8, 16, 64])
SEEDS = st.integers(0, 2**31)
NAMES = ("r", "log_w", "k", "v", "a", "b", "state")


def make_inputs(
    shape: tuple[int, int, int, int], decays: str, keys: str, seed: int, dtype: torch.dtype
) -> list[Tensor]:
    """What a model gives the recurrence: removed directions of length 1, rates in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    batch, _, heads, size = shape

    def normal(*extent: int) -> Tensor:
        return torch.randn(extent, generator=generator, dtype=torch.float64)

    shares = torch.rand(shape, generator=generator, dtype=torch.float64)
    share = {
        "least": torch.ones(shape),
        "most": torch.zeros(shape),
        "both": shares.round(),
        "any": shares,
    }[decays]
    rate = torch.rand(shape, generator=generator, dtype=torch.float64)
    direction = normal(*shape)
    if keys == "one":  # always the same place is rewritten, and wholly
        direction, rate = direction[:, :1].expand(shape), torch.ones(shape)
    direction = torch.nn.functional.normalize(direction, dim=-1)
    inputs = [
        normal(*shape), MIN_LOG_DECAY * share, normal(*shape), normal(*shape),
        -direction, direction * rate, normal(batch, heads, size, size),
    ]  # fmt: skip
    return [tensor.to(dtype).requires_grad_() for tensor in inputs]


def run(wkv: Wkv, inputs: list[Tensor], seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and the gradients of a random sum of both."""
    results = wkv(*inputs)
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros((), dtype=inputs[0].dtype)
    for result in results:
        weights = torch.randn(result.shape, generator=generator, dtype=torch.float64)
        total = total + (result * weights.to(result.dtype)).sum()
    return [result.detach() for result in results], list(torch.autograd.grad(total, inputs))


@pytest.mark.timeout(300)
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), LENGTHS, st.integers(1, 3), SIZES, DECAYS, KEYS, SEEDS)
def test_chunks_equal_steps_and_so_do_their_gradients(
    batch: int, length: int, heads: int, size: int, decays: str, keys: str, seed: int
):
    inputs = make_inputs((batch, length, heads, size), decays, keys, seed, torch.float64)
    expected, expected_gradients = run(wkv_by_steps, inputs, seed)
    found, gradients = run(wkv_in_chunks, inputs, seed)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
    for name, one, other in zip(NAMES, gradients, expected_gradients, strict=True):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(
            one, other, atol=1e-10 * scale, rtol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.timeout(300)
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), LENGTHS, st.integers(1, 3), SIZES, DECAYS, KEYS, SEEDS)
def test_single_precision_holds_over_the_whole_range_of_decays(
    batch: int, length: int, heads: int, size: int, decays: str, keys: str, seed: int
):
    inputs = make_inputs((batch, length, heads, size), decays, keys, seed, torch.float32)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected, expected_gradients = run(wkv_by_steps, exact, seed)
    found, gradients = run(wkv_in_chunks, inputs, seed)
    pairs = zip(
        ("y", "last", *NAMES), found + gradients, expected + expected_gradients, strict=True
    )
    for name, one, other in pairs:
        assert one.dtype == torch.float32
        error = (one.double() - other).abs().max().item()
        assert error <= 1e-4 * max(1.0, other.abs().max().item()), name


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 90), st.data(), DECAYS, SEEDS)
def test_a_sequence_may_be_cut_anywhere(length: int, data: st.DataObject, decays: str, seed: int):
    at = data.draw(st.integers(1, length - 1))
    *inputs, state = make_inputs((2, length, 2, 8), decays, "any", seed, torch.float64)
    whole, last = wkv_in_chunks(*inputs, state)
    first, between = wkv_in_chunks(*(tensor[:, :at] for tensor in inputs), state)
    second, end = wkv_in_chunks(*(tensor[:, at:] for tensor in inputs), between)
    torch.testing.assert_close(torch.cat((first, second), dim=1), whole)
    torch.testing.assert_close(end, last)
