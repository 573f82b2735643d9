import json
import math

import pytest
import torch
from torch import nn

from neuroswarm.errors import CheckpointError, ConfigError
from neuroswarm.training.loop_model import LoopModel
from neuroswarm.training.trained_model import Progress


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def test_losses_that_nobody_told_are_not_averaged_in():
    progress = Progress().plus(None, 3).plus(2.0, 4).plus(4.0, 5)
    assert progress == Progress(steps=3, tokens=12, loss_sum=6.0, num_losses=2)
    assert progress.mean_loss == 3.0
    assert progress.without(Progress().plus(None, 3).plus(2.0, 4)).mean_loss == 4.0
    assert Progress().plus(None, 1).mean_loss == 0.0
    assert Progress(**json.loads(json.dumps(progress.to_json()))) == progress


def test_what_a_loop_says_is_counted_and_a_loss_that_is_no_number_is_not_known():
    loop = LoopModel(model())
    loop.count(2.5, 10)
    loop.count(math.inf, 10)
    loop.count(None, 10)
    assert loop.last_loss == 2.5
    assert loop.total == Progress(steps=3, tokens=30, loss_sum=2.5, num_losses=1)
    loop.mark_published(loop.progress)
    assert loop.progress == Progress()
    assert loop.total.steps == 3


def test_buffers_counters_and_the_optimiser_come_back():
    module = model()
    loop, optimizer = LoopModel(module), sgd(module)
    assert not loop.attach(optimizer, None)
    module(torch.randn(8, 3)).sum().backward()
    optimizer.step()
    loop.count(1.5, 8)
    tensors, counters = loop.inner_state()
    counters = json.loads(json.dumps(counters, allow_nan=False))

    other = model()
    resumed, fresh = LoopModel(other), sgd(other)
    resumed.load_inner_state(tensors, counters)
    assert torch.equal(other[1].running_mean, module[1].running_mean)
    # Nobody has come for the optimiser's state yet: it is in the next checkpoint as it was.
    again, document = resumed.inner_state()
    assert document == counters
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    assert resumed.attach(fresh, None)
    assert (resumed.total, resumed.progress, resumed.last_loss) == (loop.total, loop.progress, 1.5)
    for ours, theirs in zip(other.parameters(), module.parameters(), strict=True):
        kept = optimizer.state[theirs]["momentum_buffer"]
        assert torch.equal(fresh.state[ours]["momentum_buffer"], kept)


def test_a_checkpoint_of_a_node_that_trained_by_itself_is_refused():
    loop = LoopModel(nn.Linear(2, 2))
    counters = {"position": 3, "progress": {}, "total": {}, "last_loss": None}
    with pytest.raises(CheckpointError, match="not written by a training loop of one's own"):
        loop.load_inner_state({}, counters)


def test_frozen_parameters_in_the_optimiser_are_named():
    module = model()
    module[0].weight.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"not trainable or foreign: 0\.weight"):
        LoopModel(module).attach(sgd(module), None)


def test_without_a_way_to_measure_there_is_no_held_out_loss():
    module = model()
    loop = LoopModel(module)
    loop.attach(sgd(module), None)
    assert not loop.can_evaluate
    assert math.isnan(loop.evaluate(None, 1))


def test_a_measure_sees_the_parameters_asked_for_and_leaves_the_local_ones():
    module = nn.Linear(1, 1, bias=False)
    loop = LoopModel(module)
    loop.attach(sgd(module), lambda measured: float(next(measured.parameters()).detach()))
    local = module.weight.detach().clone()
    assert loop.evaluate((torch.tensor([7.0]),), 1) == 7.0
    assert torch.equal(module.weight, local)
    assert module.training
