import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.training.optimizer_state import describe, put_down, take_up

Make = Callable[[nn.Module], torch.optim.Optimizer]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def names(module: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in module.named_parameters()}


def groups(module: nn.Module) -> list[dict[str, Any]]:
    matrices = [p for p in module.parameters() if p.dim() >= 2]
    others = [p for p in module.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "lr": 0.02}]


def train(module: nn.Module, optimizer: torch.optim.Optimizer, numbers: Iterable[int]) -> None:
    for number in numbers:
        inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(number))

        def closure(inputs: Tensor = inputs) -> Tensor:
            optimizer.zero_grad()
            loss = module(inputs).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


OPTIMIZERS: dict[str, Make] = {
    "adamw": lambda m: torch.optim.AdamW(groups(m), lr=0.01),
    "amsgrad": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.01), amsgrad=True),
    "sgd": lambda m: torch.optim.SGD(groups(m), lr=0.01, momentum=0.9, nesterov=True),
    "plain sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.01),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters(), lr=0.01),
    "asgd": lambda m: torch.optim.ASGD(m.parameters(), lr=0.01),
    "rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=0.01),
    "lbfgs": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimiser_goes_on_from_what_was_put_down_bit_for_bit(name: str):
    whole, resumed = model(), model()
    optimizer = OPTIMIZERS[name](whole)
    train(whole, optimizer, range(4))
    resumed.load_state_dict(whole.state_dict())
    tensors, document = put_down(optimizer, names(whole))
    document = json.loads(json.dumps(document, allow_nan=False))
    train(whole, optimizer, range(4, 7))

    other = OPTIMIZERS[name](resumed)
    take_up(other, names(resumed), tensors, document)
    train(resumed, other, range(4, 7))
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_copies_are_not_written_by_later_steps():
    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    train(module, optimizer, range(2))
    tensors, _ = put_down(optimizer, names(module))
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    train(module, optimizer, range(2, 4))
    live, _ = describe(optimizer, names(module))
    assert all(torch.equal(tensors[name], before[name]) for name in tensors)
    assert not torch.equal(live["state.0.weight.exp_avg"], before["state.0.weight.exp_avg"])


def test_odd_values_come_back_as_they_were():
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    odd = {"best": math.inf, "seen": (1, 2.5, None, "x"), "by": {3: [True, -math.inf]}, "d": 1e-300}
    optimizer.param_groups[0].update(odd)
    tensors, document = put_down(optimizer, names(module))
    document = json.loads(json.dumps(document, allow_nan=False))
    other = torch.optim.SGD(module.parameters(), lr=0.5)
    take_up(other, names(module), tensors, document)
    assert {name: other.param_groups[0][name] for name in odd} == odd
    assert other.param_groups[0]["lr"] == 0.01


def test_moments_finer_than_the_parameters_stay_so():
    module = model().bfloat16()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    for parameter in module.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.rand(parameter.shape)
    tensors, document = put_down(optimizer, names(module))
    other = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    take_up(other, names(module), tensors, document)
    for parameter in module.parameters():
        kept = other.state[parameter]["momentum_buffer"]
        assert kept.dtype == torch.float32
        assert torch.equal(kept, optimizer.state[parameter]["momentum_buffer"])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda: None, r"group\.0\.odd is of type function"),
        ({"deep": [object()]}, r"group\.0\.odd\.deep\.0 is of type object"),
        ({1.5: 2}, r"group\.0\.odd is of type dict"),
        (torch.zeros(2, dtype=torch.uint16), r"group\.0\.odd is of type torch.uint16"),
        (torch.zeros(2, 2).to_sparse(), r"group\.0\.odd"),
    ],
    ids=["function", "object", "key", "dtype", "sparse"],
)
def test_what_cannot_be_put_down_is_named(what: object, said: str):
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    optimizer.param_groups[0]["odd"] = what
    with pytest.raises(ConfigError, match=said):
        describe(optimizer, names(module))


def test_another_optimiser_and_other_groups_are_refused():
    module = model()
    kept = put_down(torch.optim.AdamW(groups(module)), names(module))
    with pytest.raises(ConfigError, match="holds the state of AdamW, not of SGD"):
        take_up(torch.optim.SGD(groups(module), lr=0.1), names(module), *kept)
    with pytest.raises(ConfigError, match="in other groups"):
        take_up(torch.optim.AdamW(module.parameters()), names(module), *kept)


def test_a_damaged_document_is_an_error_of_the_checkpoint():
    module = model()
    optimizer = torch.optim.AdamW(module.parameters())
    train(module, optimizer, range(1))
    tensors, document = put_down(optimizer, names(module))
    del tensors["state.0.weight.exp_avg"]
    with pytest.raises(CheckpointError, match="exp_avg"):
        take_up(optimizer, names(module), tensors, document)
