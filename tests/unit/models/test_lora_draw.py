"""The matrix A that every machine draws alike."""

import hashlib
import math

import torch

from neuroswarm.models.lora_draw import bound_of, draw_a

KNOWN = "06cd031e7ace7c50358ca372d0f041afe6dbe780e0c0a79ed899434f03f8c9f3"
"""SHA-256 of A of a layer of GPT-2 with seed 0, rank 8 and width 64."""


def test_a_is_what_the_procedure_says():
    drawn = draw_a("blocks.0.qkv", 7, (2, 3), 0.3)
    stream = hashlib.shake_256(
        b"neuroswarm v1 lora A\0" + (7).to_bytes(8, "little") + b"blocks.0.qkv"
    ).digest(24)
    for place in range(6):
        k = int.from_bytes(stream[4 * place : 4 * place + 4], "little") >> 8
        exact = (2 * k + 1 - 2**24) / 2**24 * float(torch.tensor(0.3))  # exact in float64
        assert drawn.flatten()[place].item() == float(torch.tensor(exact))


def test_the_bits_are_those_of_every_machine():
    drawn = draw_a("transformer.h.0.attn.c_attn", 0, (8, 64), bound_of(64))
    assert hashlib.sha256(drawn.numpy().astype("<f4").tobytes()).hexdigest() == KNOWN


def test_name_and_seed_decide():
    drawn = draw_a("a", 0, (4, 50), 1.0)
    assert torch.equal(draw_a("a", 0, (4, 50), 1.0), drawn)
    assert not torch.equal(draw_a("b", 0, (4, 50), 1.0), drawn)
    assert not torch.equal(draw_a("a", 1, (4, 50), 1.0), drawn)


def test_values_are_uniform_within_the_bound():
    drawn = draw_a("a", 0, (64, 1024), 0.5)
    assert drawn.abs().max() <= 0.5
    assert drawn.abs().min() > 0
    assert abs(drawn.mean()) < 0.005
    assert abs(drawn.std() - 0.5 / math.sqrt(3)) < 0.003
    counts = torch.histc(drawn, bins=8, min=-0.5, max=0.5)
    assert (counts - 8192).abs().max() < 400
