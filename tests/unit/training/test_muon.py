"""Muon makes updates orthogonal, of AdamW's size, for the matrices inside a model alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.config.training import TrainingConfig
from neuroswarm.errors import CheckpointError
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.training.muon import MOMENTUM, RMS, Muon, orthogonalise
from neuroswarm.training.optimizer import InnerOptimizer, hidden_matrices

CONFIG = TrainingConfig(weight_decay=0.0)
SHAPE = TransformerConfig(dim=16, num_layers=2, num_heads=2, context=16)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 24, 24), (2, 40, 16), (2, 16, 40)], ids=str)
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_singular_values_come_near_one_and_the_vectors_stay(shape: tuple[int, ...], scale: float):
    given = scale * random(*shape)
    before = given.clone()
    made = orthogonalise(given)
    assert torch.equal(given, before)
    left, values, right = torch.linalg.svd(before.double(), full_matrices=False)
    found = torch.diagonal(left.mT @ made.double() @ right.mT, dim1=-2, dim2=-1)
    is_large = values > 0.02 * before.double().flatten(1).norm(dim=1, keepdim=True)
    assert is_large.float().mean() > 0.8
    assert ((found > 0.6) & (found < 1.3))[is_large].all()
    assert (found < 1.3).all()
    exact = left @ right
    cosine = (made.double() * exact).sum() / (made.double().norm() * exact.norm())
    assert cosine > 0.97


def test_zeros_stay_zeros_and_matrices_of_a_stack_do_not_meet():
    stack = torch.stack([random(8, 4), torch.zeros(8, 4), random(8, 4, seed=1)])
    made = orthogonalise(stack)
    assert torch.equal(made[1], torch.zeros(8, 4))
    for index in (0, 2):
        torch.testing.assert_close(made[index], orthogonalise(stack[index : index + 1])[0])


def test_a_step_follows_the_nesterov_momentum_and_has_adamw_s_size():
    weight = nn.Parameter(torch.zeros(32, 32))
    muon = Muon([weight], weight_decay=0.5)
    momentum = torch.zeros(32, 32)
    for seed in range(3):
        gradient = random(32, 32, seed=seed)
        weight.grad = gradient.clone()
        momentum = MOMENTUM * momentum + gradient
        before = weight.detach().clone()
        muon.step(0.01)
        wanted = orthogonalise((gradient + MOMENTUM * momentum)[None])[0]
        expected = before * (1 - 0.01 * 0.5) - 0.01 * RMS * 32**0.5 * wanted
        torch.testing.assert_close(weight.detach(), expected)
        torch.testing.assert_close(muon.momenta[weight], momentum)
    moved = (weight.detach() - before * (1 - 0.01 * 0.5)).square().mean().sqrt()
    assert moved == pytest.approx(0.01 * RMS, rel=0.2)


def test_a_matrix_without_gradient_stays():
    weight = nn.Parameter(torch.ones(4, 4))
    Muon([weight], weight_decay=0.5).step(1.0)
    assert torch.equal(weight.detach(), torch.ones(4, 4))


def test_embedding_head_gains_and_biases_are_not_muon_s():
    model = Transformer(SHAPE)
    hidden = hidden_matrices(model, list(model.named_parameters()))
    assert hidden == {
        f"blocks.{k}.{part}.weight"
        for k in range(2)
        for part in ("attention.qkv", "attention.out",
                     "feed_forward.gate_and_value", "feed_forward.out")
    }  # fmt: skip
    small = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    assert hidden_matrices(small, list(small.named_parameters())) == frozenset()


def test_the_rest_of_the_model_moves_as_under_adamw():
    def moved(name: str) -> dict[str, Tensor]:
        model = Transformer(SHAPE)
        parameters = list(model.named_parameters())
        optimizer = InnerOptimizer(parameters, CONFIG, model, name)  # type: ignore[arg-type]
        for index, (_, parameter) in enumerate(parameters):
            parameter.grad = random(*parameter.shape, seed=index)
        optimizer.update(1e-2)
        return {n: p.detach().clone() for n, p in parameters}

    muon, adamw = moved("muon"), moved("adamw")
    model = Transformer(SHAPE)
    hidden = hidden_matrices(model, list(model.named_parameters()))
    assert {name for name in muon if not torch.equal(muon[name], adamw[name])} == hidden


def test_the_state_comes_back_under_its_names_and_no_other():
    model = Transformer(SHAPE)
    parameters = list(model.named_parameters())
    optimizer = InnerOptimizer(parameters, CONFIG, model, "muon")
    for _, parameter in parameters:
        parameter.grad = random(*parameter.shape)
    optimizer.update(1e-2)
    tensors = optimizer.tensors()
    hidden = hidden_matrices(model, parameters)
    assert {n for n in tensors if n.startswith("muon.")} == {f"muon.momentum.{n}" for n in hidden}
    other = InnerOptimizer(parameters, CONFIG, model, "muon")
    other.load(tensors)
    found = other.tensors()
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    adamw = InnerOptimizer(parameters, CONFIG, model, "adamw")
    for wrong in (
        {"muon.momentum.blocks.9.x": torch.zeros(1)},
        {"muon.momentum.embedding.weight": torch.zeros(256, 16)},
        {"adamw.exp_avg.blocks.0.attention.qkv.weight": torch.zeros(48, 16)},
        {"adamw.exp_avg.embedding.weight": torch.zeros(2, 2)},
        {"nonsense": torch.zeros(1)},
    ):
        with pytest.raises(CheckpointError, match="does not fit"):
            other.load(wrong)
    with pytest.raises(CheckpointError, match="does not fit"):
        adamw.load(tensors)
