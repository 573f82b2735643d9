"""What memory a model takes, before it is trained."""

from __future__ import annotations

import pytest
import torch

from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.footprint import (
    FOLLOWING_BYTES,
    SPARE_BYTES,
    TRAINING_BYTES,
    Fit,
    Footprint,
    choose_piece,
    measure_window_bytes,
)
from neuroswarm.training.loss import next_token_loss

N = 1_000_000


@pytest.mark.parametrize(
    ("budget", "fit"),
    [
        (None, Fit.TRAINS),
        (TRAINING_BYTES * N + SPARE_BYTES, Fit.TRAINS),
        (TRAINING_BYTES * N + SPARE_BYTES - 1, Fit.FOLLOWS),
        (FOLLOWING_BYTES * N + SPARE_BYTES, Fit.FOLLOWS),
        (FOLLOWING_BYTES * N + SPARE_BYTES - 1, Fit.HELPS),
        (-5, Fit.HELPS),
    ],
)
def test_what_a_machine_has_memory_for(budget: int | None, fit: Fit):
    footprint = Footprint(N, budget)
    assert footprint.fit is fit
    assert bool(footprint.explain()) == (fit is not Fit.TRAINS)


def test_a_pi_does_not_train_a_billion_parameters():
    footprint = Footprint(10**9, 3_500_000_000)
    assert footprint.fit is Fit.HELPS
    assert "training 1,000,000,000 parameters takes 44,032 MB" in footprint.explain()


@pytest.mark.parametrize(
    ("left", "piece"),
    [(32 * 4, None), (32 * 4 - 1, 16), (16 * 4, 16), (5 * 4, 4), (0, 1), (-100, 1)],
)
def test_pieces_are_as_large_as_half_of_what_is_left_bears(left: int, piece: int | None):
    """A window that keeps a byte takes two; half of the memory that is left may be taken."""
    budget = TRAINING_BYTES * N + SPARE_BYTES + left
    assert choose_piece(32, 1, Footprint(N, budget)) == piece


def test_what_a_window_keeps_is_measured():
    shape = TransformerConfig(dim=32, num_layers=2, num_heads=2, context=64)
    model = Transformer(shape)
    text = torch.zeros(3, 64, dtype=torch.int64)
    short = measure_window_bytes(model, next_token_loss, text[:, :16], text[:, :16])
    long = measure_window_bytes(model, next_token_loss, text, text)
    num_bytes = 4 * sum(p.numel() for p in model.parameters())
    assert 64 * 256 * 4 < long < num_bytes + 64 * 2 * 40 * 32 * 4
    assert 3 * short < long < 6 * short
